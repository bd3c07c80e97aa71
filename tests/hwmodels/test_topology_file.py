"""Cluster files: what they may say, and the sentence that refuses what they may not."""

import os
from pathlib import Path

import pytest

from hwmodels.errors import HardwareError
from hwmodels.topology.cluster_file import cluster_names, load_cluster, parse_cluster
from hwmodels.topology.spec import ClusterSpec
from tests.worlds.refusals import refuses

# Ten values in each of thirty lists: 1e30 of them, were they written out.
BOMB = "hosts: &a [1]\n" + "".join(
    f"{name}: &{name} [{', '.join(10 * ['*' + chr(ord(name) - 1)])}]\n"
    for name in "bcdefghijklmnopqrstuvwxyz"
)
GOOD = {
    "hosts": "2",
    "gpus_per_host": "8",
    "gpu": "h100",
    "source": "made up",
    "host_memory": "{bytes: 1.0e+12, source: made up}",
    "pcie": "{gbps: 512, source: made up}",
    "nic": "{gbps: 400, source: made up}",
}


def text(**changed: str | None) -> str:
    return "\n".join(f"{key}: {value}" for key, value in (GOOD | changed).items() if value is not None)


def parsed(**changed: str | None) -> ClusterSpec:
    return parse_cluster("mine", "mine.yaml", text(**changed))


def test_units_are_explicit() -> None:
    bits, octets = parsed(), parsed(pcie="{bytes_per_s: 64.0e+9, source: x}")
    assert bits.pcie.bytes_per_s == octets.pcie.bytes_per_s == 64e9


def test_defaults_and_overrides_of_the_classes() -> None:
    spec = parsed(
        efficiency="{nic: {value: 0.5, source: measured}}", latency_s="{nic: {value: 0.001, source: a guess}}"
    )
    nic = spec.classes["nic"]
    assert (nic.efficiency, nic.efficiency_source) == (0.5, "measured")
    assert (nic.latency_s, nic.latency_source) == (0.001, "a guess")
    assert {kind: found.efficiency for kind, found in parsed().classes.items()} == {
        "ssd": 1.0, "remote": 1.0, "dram": 1.0, "pcie": 0.75, "pcie_switch": 0.75, "nvlink": 0.67,
        "nic": 0.86, "leaf": 1.0, "spine": 1.0,
    }  # fmt: skip


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("base: blitz_a\nhosts: 3\nnvlink:\n")
    spec = load_cluster(str(path))
    assert (spec.name, spec.hosts, spec.gpu, spec.nvlink) == ("mine", 3, "a800", None)
    assert load_cluster(f"{path}_5x8").gpus == 40


def test_bases_in_a_circle_end(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"base: {path}\n")
    refuses(HardwareError, "refers back to itself", load_cluster, str(path))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"hosts": "0"}, "mine.yaml: hosts is 0; write a whole number from 1 to 131072"),
        ({"hosts": "2.5"}, "hosts is 2.5; write a whole number"),
        ({"hosts": "true"}, "hosts is True; write a whole number"),
        ({"hosts": "1000000"}, "hosts is 1000000; write a whole number from 1 to 131072"),
        ({"hosts": "100000"}, "hosts times gpus_per_host is 800000 GPUs; write at most 131072"),
        ({"hosts": "9" * 400}, r"hosts is 99+\.\.\.9*; write a whole number from 1"),
        ({"hosts": "0x" + "f" * 1900}, "hosts is .*; write a whole number from 1"),
        ({"hosts": "9" * 5000}, "mine.yaml: hosts has 5000 characters; write a shorter value"),
        ({"gpus_per_host": "1.0e+300"}, "gpus_per_host is 1.*; write a whole number from 1 to 131072"),
        ({"hosts": None}, "mine.yaml: lacks 'hosts'; write hosts, gpus_per_host"),
        ({"gpu": "h1000"}, "mine.yaml: gpu is 'h1000'; write one of .*h100"),
        ({"gpu": "[1]"}, r"gpu is \[1\]; write one of"),
        ({"nvlnk": "{gbps: 1, source: x}"}, "unknown key 'nvlnk'; write 'nvlink' if that"),
        ({"pcie": "{gbps: 512}"}, "pcie lacks 'source'"),
        ({"pcie": "{gbps: 512, source: ''}"}, r"pcie.source is ''; write a text"),
        ({"pcie": "{source: x}"}, "pcie needs one rate; write either gbps"),
        ({"pcie": "{gbps: 1, bytes_per_s: 1, source: x}"}, "pcie needs one rate"),
        ({"pcie": "{gbps: 1e2, source: x}"}, r"pcie.gbps is '1e2'; write a number, such as 100 or 1.0e\+9"),
        ({"pcie": "{gbps: 0, source: x}"}, "pcie is 0 bytes per second; write a rate from 1000 to 1e.15"),
        ({"pcie": "{gbps: .nan, source: x}"}, "pcie.gbps is nan"),
        ({"pcie": "{bytes_per_s: 1.0e+18, source: x}"}, "pcie is 1e.18 bytes per second"),
        ({"pcie": "128"}, "pcie is 128; write a mapping"),
        ({"pcie": "{gbps: 1, shared_by: 3, source: x}"}, "pcie.shared_by is 3; write a divisor of the 8"),
        ({"pcie": "{gbps: 1, shared_by: '2', source: x}"}, "pcie.shared_by is '2'; write a whole number"),
        ({"pcie": "{gbps: 1, gpus: 2, source: x}"}, "pcie has the unknown key 'gpus'"),
        ({"pcie_peer": "{gbps: 100, source: x}"}, "pcie_peer is slower than pcie"),
        ({"nic": "{gbps: 1, gpus: 5, source: x}"}, "nic.gpus is 5; write a divisor"),
        ({"nic": None}, "nic is missing; 2 hosts need a network"),
        ({"nvlink": "{gbps: 1, domain_gpus: 12, source: x}"}, "domain_gpus is 12; write a divisor or a"),
        ({"ssd": "{gbps: 1, per: rack, source: x}"}, "ssd.per is 'rack'; write one of gpu, host"),
        ({"remote": "{gbps: 1, per: [gpu], source: x}"}, r"remote.per is \['gpu'\]; write one of"),
        ({"leaf": "{hosts: 0, source: x}"}, "leaf.hosts is 0"),
        ({"leaf": "{spines: 0, source: x}"}, "leaf.spines is 0"),
        ({"leaf": "{oversubscription: 0.5, source: x}"}, "oversubscription is 0.5; write a ratio"),
        ({"leaf": "{rails: 8, source: x}"}, "leaf.rails is 8; write true or false"),
        ({"leaf": "{hosts: 2}"}, "leaf lacks 'source'"),
        ({"host_memory": "{bytes: -1, source: x}"}, "host_memory.bytes is -1; write a whole number from"),
        ({"host_memory": f"{{bytes: {'9' * 400}, source: x}}"}, "host_memory.bytes is 9+.*; write a whole"),
        ({"nvlink": f"{{gbps: 1, domain_gpus: 8{'0' * 50}, source: x}}"}, "domain_gpus is 80+; write"),
        ({"pcie": "{gbps: 1, shared_by: 8000000, source: x}"}, "pcie.shared_by is 8000000; write a whole"),
        ({"nic": "{gbps: 1, gpus: 8000000, source: x}"}, "nic.gpus is 8000000; write a whole number from 1"),
        ({"leaf": "{hosts: 1000000, source: x}"}, "leaf.hosts is 1000000; write a whole number from 1"),
        ({"leaf": "{spines: 1000000, source: x}"}, "leaf.spines is 1000000; write a whole number from 1 to"),
        ({"leaf": "{oversubscription: 1.0e+9, source: x}"}, "leaf.oversubscription is 1e.09; write a ratio"),
        ({"efficiency": "{nic: {value: 5.0e-324, source: x}}"}, "efficiency.nic is 4.*; write a share from"),
        ({"pcie": "{bytes_per_s: 5.0e-324, source: x}"}, "pcie is 4.* bytes per second; write a rate from"),
        ({"latency_s": "{nic: {value: 1.0e+9, source: x}}"}, "latency_s.nic is 1e.09; write seconds from 0"),
        ({"host_memory": "64"}, "host_memory is 64; write a mapping"),
        ({"efficiency": "{nic: 0.5}"}, "efficiency.nic is 0.5; write a mapping with value, source"),
        ({"efficiency": "{nic: {value: 1.5, source: x}}"}, "efficiency.nic is 1.5; write a share"),
        ({"efficiency": "{rdma: {value: 0.5, source: x}}"}, "efficiency has the unknown key 'rdma'"),
        ({"latency_s": "{nic: {value: -1, source: x}}"}, "latency_s.nic is -1; write seconds"),
        ({"base": "3"}, "base is 3; write"),
        ({"base": "nowhere"}, "unknown cluster 'nowhere'"),
    ],
)  # fmt: skip
def test_what_is_refused(changed: dict[str, str | None], said: str) -> None:
    refuses(HardwareError, said, parsed, **changed)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "the file is None; write a mapping"),
        ("- 1", r"the file is \[1\]; write a mapping"),
        ("hosts: [", "mine.yaml is not YAML"),
        ("a: &a [*a]", r"mine.yaml: a has an alias \(\*NAME\); write the value itself"),
        ("hosts: &a {b: *a}", r"hosts.b has an alias"),
        (BOMB, r"b has an alias"),
        ("hosts: " + "[" * 2000, "mine.yaml is not YAML"),
        ("hosts: 1\nhosts: 2", "hosts occurs twice; write it once"),
        ("pcie: {gbps: 1, gbps: 2}", "pcie.gbps occurs twice"),
        ("hosts: 2001-99-99", "mine.yaml is not YAML"),
        ("1: 2", "unknown key 1"),
        ("? [a]\n: 1", "mine.yaml is not YAML"),
    ],
)
def test_files_that_are_no_cluster(content: str, said: str) -> None:
    refuses(HardwareError, said, parse_cluster, "mine", "mine.yaml", content)


def test_large_clusters_have_room() -> None:
    """100,000 GPUs on rail-optimised leaves, each with a link to each of 64 spines."""
    spec = parsed(hosts="12500", leaf="{hosts: 32, spines: 64, rails: true, source: made up}")
    assert (spec.gpus, spec.leaf_switches) == (100_000, 3128)


def test_links_between_leaves_and_spines_are_counted_before_they_are_made() -> None:
    with pytest.raises(
        HardwareError, match=r"leaf.spines times the 2048 leaves is 8388608 links; write at m"
    ):
        parsed(hosts="2048", leaf="{hosts: 1, spines: 4096, source: made up}")


def test_a_file_that_is_no_cluster_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    refuses(HardwareError, r"large.yaml has 1099511627776 bytes and the limit is", load_cluster, str(path))
    os.mkfifo(tmp_path / "pipe.yaml")
    refuses(HardwareError, r"pipe.yaml is not a regular file", load_cluster, str(tmp_path / "pipe.yaml"))


def test_names_and_paths_that_lead_nowhere(tmp_path: Path) -> None:
    refuses(HardwareError, "unknown cluster 'blitz-a'; write 'blitz_a', another of", load_cluster, "blitz-a")
    refuses(HardwareError, "unknown cluster 'blitz_0'", load_cluster, "blitz_0_2x8")
    with pytest.raises(HardwareError, match=r"none\.yaml cannot be read \(No such file"):
        load_cluster(str(tmp_path / "none.yaml"))
    (tmp_path / "bad.yaml").write_bytes(b"\xff\xfe\x00")
    refuses(HardwareError, "it is not UTF-8 text", load_cluster, str(tmp_path / "bad.yaml"))


@pytest.mark.parametrize("name", cluster_names())
def test_a_shipped_file_says_where_every_number_is_from(name: str) -> None:
    spec = load_cluster(name)
    rates = [
        rate for rate in (spec.pcie, spec.pcie_peer, spec.nvlink, spec.nic, spec.ssd, spec.remote) if rate
    ]
    said = [spec.source, spec.host_memory_source, spec.leaves.source, *(rate.source for rate in rates)]
    said += [
        word for found in spec.classes.values() for word in (found.efficiency_source, found.latency_source)
    ]
    assert all(len(word) > 8 for word in said)
