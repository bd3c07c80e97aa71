"""servetwin support cluster=C: what it says of a cluster agrees with the cluster, and its picture is one."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels.catalogue import load_llm
from hwmodels.errors import HardwareError
from hwmodels.models.load_units import model_units
from hwmodels.topology.cluster_file import cluster_names, load_cluster
from hwmodels.topology.cuts import disjoint_paths, leaves_of, narrowest
from hwmodels.topology.link import dram, gpu
from hwmodels.topology.spec import ClusterSpec, Leaves, hosts_x_gpus
from hwmodels.topology.topology import build
from servetwin.cli import main as cli
from servetwin.support.cluster import cluster_lines, example_paths, shared_by
from servetwin.support.multicast_bound import hosts_of_multicast, multicasts
from servetwin.support.path_diversity import least_diverse, path_diversity
from servetwin.support.topology_picture import draw
from serving.vocabulary.errors import UserError
from tests.worlds.drawn_clusters import specs

SECTIONS = (
    "source", "shared", "links", "paths", "together", "diversity", "multicast", "rates", "efficiency",
    "latency",
)  # fmt: skip


def row(lines: list[str], label: str) -> list[str]:
    """The cells of the table row that starts with ``label``."""
    (found,) = [line for line in lines if line.strip().startswith(f"{label}  ")]
    return re.split(r"\s{2,}", found.strip())


@pytest.mark.parametrize("name", [*cluster_names(), "blitz_a_512x8", "blitz_a_1x1"])
def test_every_cluster_fits_the_screen(name: str) -> None:
    lines = cluster_lines(name)
    assert max(map(len, lines)) <= 100
    starts = [line.split("  ")[0] for line in lines if line[:1].strip()]
    assert starts[1:] == list(SECTIONS)


def test_the_numbers_are_the_papers() -> None:
    lines = cluster_lines("blitz_a")
    assert lines[0] == "blitz_a: 4 hosts of 8 x a800, 32 GPUs, 224 links"
    assert row(lines, "nic") == ["nic", "each GPU", "100", "86.0", "86 %", "64"]
    assert row(lines, "SSD to GPU") == ["SSD to GPU", "10.0", "12.8 s", "100 us", "host0/gpu0 ssd"]
    assert row(lines, "GPU to GPU, NVLink")[:3] == ["GPU to GPU, NVLink", "1,072", "0.119 s"]
    text = " ".join(" ".join(lines).split())
    for said in ("Table 1, cluster A", "nvlink: Table 1", "4 NVLink domains of 8 GPUs", "pcie 0.75: 48 GB"):
        assert said in text


def test_what_is_shared_is_said() -> None:
    text = " ".join(" ".join(cluster_lines("blitz_b_shared_pcie")).split())
    assert "no NVLink" in text and "8 PCIe switches, each for 2 GPUs" in text
    assert "a NIC for each 4 GPUs" in " ".join(cluster_lines("llumnix"))
    rails = " ".join(" ".join(cluster_lines("dgx_h100")).split())
    assert "8 leaves of 4 NICs, NIC k of every host on leaf k of its set, 4 spines" in rails


def test_the_paths_shown_are_those_of_the_topology() -> None:
    topology = build(load_cluster("dgx_h100"))
    shown = dict(example_paths(topology))
    assert list(shown) == [
        "SSD to GPU", "host to GPU", "GPU to GPU, NVLink", "GPU to GPU, one leaf", "GPU to GPU, two leaves",
        "host to another's GPU",
    ]  # fmt: skip
    assert shown["host to GPU"] == topology.path(dram(0), gpu(0))
    assert len(shown["GPU to GPU, two leaves"]) == len(shown["GPU to GPU, one leaf"]) + 2
    alone = dict(example_paths(build(load_cluster("blitz_a_1x1"))))
    assert list(alone) == ["SSD to GPU", "host to GPU"]
    assert "remote store to host" in dict(example_paths(build(load_cluster("a3_highgpu_8g"))))


def test_what_moves_at_once_is_said_with_the_links_that_limit_it() -> None:
    lines = cluster_lines("blitz_a")
    halves = "half of the hosts' GPUs to the others"
    assert row(lines, halves) == [halves, "1,376", "86.0", "nic, 16 of 64 links"]
    assert row(lines, "SSDs to all GPUs") == ["SSDs to all GPUs", "320", "10.0", "ssd, 32 of 32 links"]
    one = "one host to the other hosts' GPUs"
    assert row(lines, one) == [one, "688", "28.7", "nic, 8 of 64 links"]
    shared = row(cluster_lines("a3_highgpu_8g"), "remote store to all GPUs")
    assert shared[1:] == ["31.0", "0.970", "remote, 4 of 4 links"]
    large = " ".join(" ".join(cluster_lines("blitz_a_512x8")).split())
    assert "together not looked for in more than 10,000 links" in large


def test_the_page_shows_what_the_command_prints() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "explanation" / "DATA_PLANE.md").read_text()
    (block,) = re.findall(r"```text\n(diversity .*?)```", page, re.DOTALL)
    assert block in "\n".join(cluster_lines("blitz_a", "llama3_8b", 1))


LEAF_SPINE = [
    (spines, nics, rails) for spines in (1, 2, 3, 5) for nics in (1, 2, 4) for rails in (False, True)
]


@pytest.mark.parametrize(("spines", "nics", "rails"), LEAF_SPINE)
def test_paths_of_leaves_and_spines_are_those_of_the_closed_form(spines: int, nics: int, rails: bool) -> None:
    """Two leaves: one path per spine. Two hosts: one per NIC, each on its leaf (rails) or all on one."""
    base = hosts_x_gpus(4, 4, load_cluster("blitz_a"))
    leaves = Leaves(hosts=2, spines=spines, rails=rails, source="drawn")
    topology = build(replace(base, gpus_per_nic=4 // nics, leaves=leaves))
    found = {one.what.partition(",")[0]: one for one in path_diversity(topology)}
    assert found["GPU 0 to GPU 1"].paths == 2, "NVLink and PCIe"
    assert found["host 0 to host 1"].paths == nics
    assert found["host 0 to host 2"].paths == (nics if rails else min(nics, spines))
    assert found["leaf 0 to leaf 1"].paths == spines
    least = least_diverse(list(found.values()))
    assert least is not None and least.paths == 1 and least.rate_bytes_per_s == least.one_path_bytes_per_s


@settings(max_examples=40)
@given(spec=specs(), data=st.data())
def test_one_pair_of_each_kind_stands_for_all(spec: ClusterSpec, data: st.DataObject) -> None:
    topology = build(spec)
    if spec.gpus == 1:
        return
    first, second = data.draw(st.lists(st.integers(0, spec.gpus - 1), min_size=2, max_size=2, unique=True))
    paths, rate = (
        disjoint_paths(topology, [gpu(first)], [gpu(second)]),
        narrowest(topology, [gpu(first)], [gpu(second)]).rate_bytes_per_s,
    )
    found = [one for one in path_diversity(topology) if one.what.startswith("GPU")]
    assert any(one.paths == paths and math.isclose(one.rate_bytes_per_s, rate) for one in found)
    least = least_diverse(found)
    assert least is not None and (least.paths, least.rate_bytes_per_s) <= (paths, rate * (1 + 1e-9))


@settings(max_examples=40)
@given(spec=specs(), tp=st.sampled_from((1, 1, 2)))
def test_no_plan_is_faster_than_the_bound(spec: ClusterSpec, tp: int) -> None:
    topology = build(spec)
    for one in multicasts(topology, "llama3_8b", tp):
        assert 0 < one.least_s <= one.planned_s * (1 + 1e-6), one


def test_the_bound_of_a_multicast_by_hand() -> None:
    """GPU to GPU over NICs of 86 Gbps: the bytes of the model by that rate, however many copies are made."""
    size_bytes = sum(unit.size_bytes for unit in model_units(load_llm("llama3_8b")))
    one, many, host, half = multicasts(build(load_cluster("blitz_a")))
    assert one.least_s == many.least_s == pytest.approx(size_bytes / (86e9 / 8))
    assert host.least_s == half.least_s == pytest.approx(size_bytes / (8 * 86e9 / 8))
    assert (one.copies, many.copies, host.copies, half.copies) == (1, 24, 24, 16)
    tall = replace(load_cluster("blitz_a"), leaves=Leaves(hosts=2, oversubscription=16.0, source="drawn"))
    over = multicasts(build(tall))[2]
    assert over.least_s == pytest.approx(size_bytes / (16 * 100e9 / 8 / 16)), "what one leaf lets in"
    assert not multicasts(build(load_cluster("blitz_a_1x8")))


def test_a_large_cluster_is_looked_at_on_hosts_spread_over_it() -> None:
    topology = build(load_cluster("dgx_h100_1024x8"))
    hosts = hosts_of_multicast(topology)
    assert len(hosts) == 32 and hosts[0] == 0 and hosts[-1] == 1023
    assert len({leaf for host in hosts for leaf in leaves_of(topology, host)}) > 100
    text = " ".join(" ".join(cluster_lines("dgx_h100_1024x8")).split())
    assert "32 of the 1,024 hosts, spread evenly" in text and "one pair of each kind" in text


def test_loads_of_a_named_model(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["support", "cluster=blitz_a", "model=llama2_70b", "tp=4", "--json"]
    assert cli.run(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["multicast"]["model"], found["multicast"]["tp"]) == ("llama2_70b", 4)
    assert [one["copies"] for one in found["multicast"]["scale_ups"]] == [1, 6, 6, 4]
    assert found["diversity"][0]["paths"] == 2
    for wrong, told in (("tp=9", "a number from 1 to 8"), ("tp=x", "write a number"), ("model=x", "llama")):
        assert cli.run(["support", "cluster=blitz_a", wrong]) == 2
        assert told in capsys.readouterr().err


def test_whose_bytes_meet() -> None:
    topology = build(load_cluster("llumnix"))
    kinds = ("nic", "pcie", "ssd", "leaf", "dram")
    assert [shared_by(topology, kind) for kind in kinds] == [
        "4 GPUs", "each GPU", "each host", "each leaf and spine", "each host",
    ]  # fmt: skip


def test_an_unknown_cluster_is_refused() -> None:
    with pytest.raises(HardwareError, match="unknown cluster 'blitz_c'; write 'blitz_"):
        cluster_lines("blitz_c")


@pytest.mark.parametrize("name", ["dgx_h100", "blitz_b_shared_pcie", "llumnix", "local", "dgx_h100_40x8"])
def test_the_picture_names_what_is_there(name: str, tmp_path: Path) -> None:
    topology = build(load_cluster(name))
    draw(topology, tmp_path / "cluster.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.svg"]
    text = (tmp_path / "cluster.svg").read_text()
    said = re.findall(r"<!-- (.*?) -->", text)
    drawn = 32 if topology.spec.gpus > 64 else topology.spec.gpus
    assert [word for word in said if word.isdigit()] == [str(number) for number in range(drawn)]
    assert said.count("host 0") == 1 and any(word.startswith(name) for word in said)
    leaves = {f"leaf {topology.site(index).leaf}" for index in range(drawn) if topology.counts.leaves}
    assert {word for word in said if re.fullmatch(r"leaf \d+", word)} == leaves
    spines = [word for word in said if word.startswith("spine ")]
    assert len(spines) == topology.counts.up_spines


def test_a_png_too_and_nothing_else(tmp_path: Path) -> None:
    topology = build(load_cluster("blitz_a"))
    draw(topology, tmp_path / "cluster.png")
    assert (tmp_path / "cluster.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(UserError, match=r"write a name that ends in \.png, \.svg, \.pdf"):
        draw(topology, tmp_path / "cluster.doc")
    with pytest.raises(UserError, match="cannot be written"):
        draw(topology, tmp_path / "nowhere" / "cluster.png")
    with pytest.raises(UserError, match="a host of 65 GPUs is too wide"):
        draw(build(hosts_x_gpus(1, 65, topology.spec)), tmp_path / "wide.png")


def test_instances_hold_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    """Without tp the smallest that fits; less is refused."""
    assert cli.run(["support", "cluster=blitz_a", "model=llama3_70b"]) == 0
    assert "instances of 2 GPUs" in " ".join(capsys.readouterr().out.split())
    assert cli.run(["support", "cluster=blitz_a", "model=llama3_70b", "tp=1"]) == 2
    assert "write a number from 2 to 8" in " ".join(capsys.readouterr().err.split())
