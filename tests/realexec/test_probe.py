"""What ``realexec probe`` makes of a machine: of faked lists of devices, and of this one."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from realexec.probe import memory as probed_memory
from realexec.probe.machine import lines_of, packages, path_choices, probe
from realexec.probe.memory import disk, memory
from realexec.probe.missing import missing
from realexec.system.devices import gpus, nics, nvlinks, ran, rdma
from servetwin.cli import realexec as realexec_cli

SMI = """0, NVIDIA H200, 143771, 580.65.06, 00000000:18:00.0
1, NVIDIA H200, 143771, 580.65.06, 00000000:2A:00.0
2, NVIDIA H200, [N/A], 580.65.06, 00000000:3A:00.0
"""
TOPO = """\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\tSYS\tPIX\t0-47\t0
GPU1\tNV18\t X \tSYS\tSYS\t0-47\t0
GPU2\tSYS\tSYS\t X \tSYS\t48-95\t1
NIC0\tPIX\tSYS\tSYS\t X \t\t

Legend:
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def smi(words: Sequence[str]) -> str | None:
    assert words[0] == "nvidia-smi"
    return TOPO if "topo" in words else SMI


def no_smi(words: Sequence[str]) -> str | None:
    return None


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def fabric(tmp_path: Path) -> Path:
    """An adapter of two ports, of which one is up; software RDMA over the Ethernet device; loopback."""
    return written(
        tmp_path,
        {
            "class/net/eth0/speed": "25000\n",
            "class/net/eth0/operstate": "up\n",
            "class/net/eth0/device/vendor": "0x15b3\n",
            "class/net/eth1/speed": "-1\n",
            "class/net/eth1/operstate": "down\n",
            "class/net/eth1/device/vendor": "0x15b3\n",
            "class/net/lo/operstate": "unknown\n",
            "class/infiniband/mlx5_0/device/vendor": "0x15b3\n",
            "class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
            "class/infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (4X HDR)\n",
            "class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
            "class/infiniband/mlx5_0/ports/2/state": "1: DOWN\n",
            "class/infiniband/mlx5_0/ports/2/rate": "2.5 Gb/sec (1X SDR)\n",
            "class/infiniband/rxe0/ports/1/state": "4: ACTIVE\n",
            "class/infiniband/rxe0/ports/1/link_layer": "Ethernet\n",
        },
    )


def test_gpus_and_nvlink_by_the_drivers_word() -> None:
    first, second, third = gpus(smi)
    assert first == {
        "index": 0, "name": "NVIDIA H200", "memory_bytes": 143771 << 20, "driver": "580.65.06",
        "bus": "00000000:18:00.0",
    }  # fmt: skip
    assert second["index"] == 1 and third["memory_bytes"] is None
    assert nvlinks(smi) == [{"gpus": [0, 1], "links": 18}]
    assert gpus(no_smi) == nvlinks(no_smi) == []


def test_what_is_no_program_or_fails_tells_nothing() -> None:
    assert ran(["servetwin-has-no-such-program"]) is None and ran(["false"]) is None
    assert ran(["echo", "told"]) == "told\n"


def test_adapters_are_read_from_the_systems_folders(fabric: Path) -> None:
    assert nics(fabric) == [
        {"name": "eth0", "up": True, "gbps": 25.0, "hardware": True},
        {"name": "eth1", "up": False, "gbps": None, "hardware": True},
        {"name": "lo", "up": False, "gbps": None, "hardware": False},
    ]
    mellanox, software = rdma(fabric)
    assert (mellanox["name"], mellanox["hardware"]) == ("mlx5_0", True)
    assert mellanox["ports"] == [
        {"port": 1, "link": "InfiniBand", "active": True, "gbps": 200.0},
        {"port": 2, "link": None, "active": False, "gbps": 2.5},
    ]
    assert (software["name"], software["hardware"]) == ("rxe0", False)
    assert nics(fabric / "nowhere") == rdma(fabric / "nowhere") == []


def test_memory_as_the_system_tells_it(tmp_path: Path) -> None:
    written(
        tmp_path, {"meminfo": "MemTotal: 2048 kB\nMemAvailable: 1000 kB\nHugePages_Total: 0\nVmallocTotal:\n"}
    )
    found = memory(tmp_path, tmp_path)
    assert (found["total"], found["available"]) == (2048 << 10, 1000 << 10)
    assert found["shared"] > 0 and found["arenas"] in ("memfd", "files")
    assert memory(tmp_path, tmp_path / "nowhere")["shared"] is None
    assert memory(tmp_path / "nowhere", tmp_path)["total"] > 0


def test_a_disk_is_read_past_the_cache_or_its_rate_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = disk(tmp_path, 8 << 20)
    assert found["free_bytes"] > 0 and list(tmp_path.iterdir()) == []
    assert found["direct"] == (found["read_bytes_per_s"] is not None)
    assert disk(tmp_path / "nowhere") == {
        "folder": str(tmp_path / "nowhere"), "direct": False, "read_bytes_per_s": None, "free_bytes": None,
    }  # fmt: skip
    monkeypatch.setattr(probed_memory.os, "O_DIRECT", 0o77777777, raising=False)
    refused = disk(tmp_path, 8 << 20)
    assert not refused["direct"] and refused["free_bytes"] > 0 and list(tmp_path.iterdir()) == []


def test_pyverbs_of_the_distribution_counts(tmp_path: Path) -> None:
    if packages(tmp_path)["pyverbs"] is None:
        (tmp_path / "pyverbs").mkdir()
        assert packages(tmp_path)["pyverbs"] == str(tmp_path / "pyverbs")


def test_what_is_used_follows_what_works() -> None:
    plain = {"shared_memory": None, "tcp": None, "nixl": "not installed"}
    on_cpu = path_choices(plain, on_gpu=False)
    assert on_cpu["parameters from a peer of this host"].startswith("shared_memory (")
    assert on_cpu["parameters from a peer of this host"].endswith("or transport=tcp")
    assert on_cpu["parameters from a peer of another host"].startswith("tcp (")
    from_disk = path_choices(plain, on_gpu=True)["parameters from a disk"]
    assert "GPU" not in " ".join(on_cpu.values()) and "GPU" in from_disk
    on_gpu = path_choices({**plain, "peer_copy": None}, on_gpu=True)
    assert on_gpu["parameters from a peer of this host"].startswith("peer_copy (")
    assert on_gpu["parameters from a peer of this host"].endswith("or transport=shared_memory or tcp")
    assert on_gpu["parameters from a peer of another host"].startswith("tcp (")
    with_nixl = path_choices({**plain, "nixl": None}, on_gpu=False)
    assert with_nixl["parameters from a peer of another host"].endswith("or transport=nixl")
    nothing = path_choices(dict.fromkeys(plain, "no"), on_gpu=False)
    assert nothing["parameters from a peer of another host"] == "no transport works here"


WHOLE: dict[str, Any] = {
    "torch": "2.13.0", "transformers": "5.23", "gpus": gpus(smi), "disk": {"direct": True, "folder": "/tmp"},
    "cuda": {"devices": ["NVIDIA H200"], "build": "13.0", "fault": None, "nccl": "2.28"},
    "rdma": [{"name": "mlx5_0", "ports": [{"active": True}]}], "memory": {"locked": None},
    "packages": {"pyverbs": "here", "nixl": "1.0", "ray": "2.60"},
    "transports": {"verbs": None, "nixl": None},
}  # fmt: skip
NO_CUDA = {"devices": [], "build": None, "fault": None, "nccl": None}


@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        ({"torch": None}, "pip install 'servetwin[real]'"),
        ({"cuda": NO_CUDA}, "torch, a build for CPUs, sees none"),
        ({"cuda": {**NO_CUDA, "build": "13.0"}}, "torch, built for CUDA 13.0, sees none"),
        (
            {"cuda": {**NO_CUDA, "fault": "OSError: libcudart"}},
            "cannot list GPUs (OSError: libcudart)",
        ),
        ({"cuda": NO_CUDA, "gpus": []}, "install NVIDIA's driver"),
        ({"rdma": []}, "install rdma-core"),
        ({"rdma": [{"name": "mlx5_0", "ports": [{"active": False}]}]}, "No port of an RDMA device is active"),
        ({"packages": {**WHOLE["packages"], "pyverbs": None}}, "install Debian's python3-pyverbs"),
        ({"packages": {**WHOLE["packages"], "nixl": None}}, "pip install nixl"),
        ({"packages": {**WHOLE["packages"], "ray": None}}, "pip install 'servetwin[ray]'"),
        (
            {"transports": {"verbs": "no pyverbs can be imported (OSError: libibverbs)", "nixl": None}},
            "transport=verbs: no pyverbs can be imported (OSError: libibverbs)",
        ),
        (
            {"transports": {"verbs": None, "nixl": "the nixl package cannot be imported (X)"}},
            "transport=nixl: the nixl package cannot be imported (X)",
        ),
        ({"memory": {"locked": 65536}}, "A process may lock 65,536 bytes"),
        ({"disk": {"direct": False, "folder": "/tmp"}}, "The rate of the disk of /tmp is not known"),
    ],
)
def test_each_lack_is_told_with_what_helps(lacks: dict[str, Any], said: str) -> None:
    assert missing(WHOLE) == []
    (sentence,) = missing({**WHOLE, **lacks})
    assert said in sentence and sentence.endswith(".")


def test_a_machine_without_an_adapter_needs_none_of_its_libraries() -> None:
    bare = {**WHOLE, "rdma": [], "memory": {"locked": 65536}}
    bare["packages"] = {**WHOLE["packages"], "pyverbs": None}
    assert len(missing(bare)) == 1


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose import takes seconds."""
    monkeypatch.setattr("realexec.probe.machine.cuda", lambda: NO_CUDA)


def test_this_machine(fabric: Path, no_torch: None) -> None:
    found = probe(fabric, no_smi, fabric)
    assert json.loads(json.dumps(found)) == found
    assert found["cpus"] >= 1 and found["memory_bytes"] > 1 << 20
    assert found["rdma_devices"] == ["mlx5_0", "rxe0"]
    assert not any("No RDMA device" in sentence for sentence in found["missing"])
    assert found["transports"]["tcp"] is None and found["transport"] in found["transports"]
    equipped = "\n".join(lines_of({**found, "gpus": gpus(smi), "nvlinks": nvlinks(smi)}))
    for part in (
        "GPU 1              NVIDIA H200, 150.8 GB, driver 580.65.06",
        "NVLink             GPU 0 and GPU 1: 18 links",
        "network            eth0: up, 25 Gbit/s",
        "network            eth1: down, of no known speed",
        "mlx5_0 (hardware): port 1 InfiniBand active 200 Gbit/s, port 2 of no known kind down 2.5 Gbit/s",
        "rxe0 (software): port 1 Ethernet active",
        "parameters from a peer of this host: shared_memory",
    ):
        assert part in equipped, equipped
    assert "lo:" not in equipped


def test_the_command_prints_text_or_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, no_torch: None, tmp_path: Path
) -> None:
    monkeypatch.setattr("realexec.probe.machine.disk", lambda folder: disk(folder, 1 << 20))
    assert realexec_cli.run(["probe", f"folder={tmp_path}"]) == 0
    assert f"disk               {tmp_path}: " in capsys.readouterr().out
    assert realexec_cli.run(["probe", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cpus"] >= 1
    assert realexec_cli.run(["probe", f"folder={tmp_path}/none"]) == 2
    assert "is no folder" in capsys.readouterr().err
    assert realexec_cli.run(["probe", "gpus"]) == 2
    assert "write realexec probe, with folder=DIR or --json" in capsys.readouterr().err
