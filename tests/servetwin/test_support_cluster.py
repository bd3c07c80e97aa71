"""servetwin support cluster=C: what it says of a cluster agrees with the cluster, and its picture is one."""

import re
from pathlib import Path

import pytest

from hwmodels.errors import HardwareError
from hwmodels.topology.cluster_file import cluster_names, load_cluster
from hwmodels.topology.link import dram, gpu
from hwmodels.topology.spec import hosts_x_gpus
from hwmodels.topology.topology import build
from servetwin.support.cluster import cluster_lines, example_paths, shared_by
from servetwin.support.topology_picture import draw
from serving.vocabulary.errors import UserError

SECTIONS = ("source", "shared", "links", "paths", "together", "rates", "efficiency", "latency")


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
