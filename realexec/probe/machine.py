"""All facts about this machine: as one mapping in JSON types, and as lines of text for people."""

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from realexec import transport_registry as registry
from realexec.probe.memory import disk, memory
from realexec.probe.missing import missing
from realexec.system.devices import SYS, Ran, gpus, nics, nvlinks, ran, rdma
from realexec.transport_registry import DIRECT, ONE_HOST, best_first

# Which libraries are installed, and which GPUs torch sees.

# Where Debian's pyverbs is; no package index has one that works with Debian's libraries.
DEBIAN: Final = Path("/usr/lib/python3/dist-packages")
NAMES: Final = ("torch", "transformers", "safetensors", "nixl", "ray")


def packages(debian: Path = DEBIAN) -> dict[str, Any]:
    """Return versions, None for a missing package. ``pyverbs``: its location."""
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        **{name: version(name) for name in NAMES},
        "pyverbs": _pyverbs(debian),
    }


def cuda() -> dict[str, Any]:
    """Return what torch sees: ``devices`` (names), ``build`` (the CUDA version it was built for; None: for
    CPUs), ``fault`` (why torch cannot report GPUs), ``nccl`` (its version)."""
    facts: dict[str, Any] = {"devices": [], "build": None, "nccl": None, "fault": None}
    if version("torch") is None:
        return facts
    try:
        import torch

        facts["build"] = torch.version.cuda
        facts["devices"] = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        if facts["devices"]:
            facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    except (
        ImportError,
        OSError,
        RuntimeError,
        AttributeError,
    ) as error:  # incompatible libraries
        facts["fault"] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return facts


def version(package: str) -> str | None:
    """Return the version of a distribution; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _pyverbs(debian: Path) -> str | None:
    if importlib.util.find_spec("pyverbs") is not None:
        return "here"
    return str(debian / "pyverbs") if (debian / "pyverbs").is_dir() else None


# Which transport or copy is used for each path of bytes, given what the machine has.

_HOW: Final = {
    "shared_memory": "the reader copies out of the peer's arena",
    "tcp": "a connection of its own; a thread of the peer sends",
    "peer_copy": "from the peer's device memory into the own one",
    "nccl": "a thread of the peer sends from its GPU to the own one",
    "gloo": "a thread of the peer sends from the memory that it computes in",
}
_GPU: Final = "; between arena and GPU by copies of pinned pages"


def path_choices(transports: Mapping[str, str | None], on_gpu: bool) -> dict[str, str]:
    """Return a sentence for each path. ``transports``: why the machine cannot use each, or None."""
    have = [name for name, lack in transports.items() if lack is None]
    near = _told(best_first(have, on_gpu))
    far = _told([name for name in have if name not in ONE_HOST])
    copied = _GPU if on_gpu else ""
    return {
        "parameters from a disk": f"files mapped, through the page cache{copied}",
        "parameters from the host's memory": f"a second copy in the worker's arena{copied}",
        "parameters from a peer of this host": near if _direct(have, on_gpu) else f"{near}{copied}",
        "parameters from a peer of another host": f"{far}{copied}",
        "KV": "as parameters from a peer",
        "hidden states": "as parameters from a peer",
    }


def _direct(have: Sequence[str], on_gpu: bool) -> bool:
    return bool(have) and best_first(have, on_gpu)[0] in DIRECT


def _told(names: Sequence[str]) -> str:
    """Name the first transport, and those that a run may name instead."""
    if not names:
        return "no transport works here"
    first, *others = names
    text = f"{first} ({_HOW[first]})" if first in _HOW else first
    return f"{text}; or transport={' or '.join(others)}" if others else text


_GIGA: Final = 1e9


def probe(sys_root: Path = SYS, run: Ran = ran, folder: Path | None = None) -> dict[str, Any]:
    """Return facts about this machine.

    ``cpus``, ``memory``, ``disk`` (of ``folder``; None: the folder of temporary files), ``gpus``,
    ``nvlinks``, ``cuda`` (what torch sees), ``nics``, ``rdma``, ``packages``, ``transports`` (why this
    machine cannot use each, or None), ``transport`` (the default for reads between workers of one host),
    ``ways`` (what is used for each path of bytes) and ``missing`` (sentences, empty if nothing is missing).
    ``memory_bytes``, ``torch``, ``transformers``, ``cuda_devices`` and ``rdma_devices`` repeat the main facts
    in short.
    """
    transports, sees, libraries = registry.missing(sys_root), cuda(), packages()
    room, adapters = memory(), rdma(sys_root)
    facts: dict[str, Any] = {
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": room["total"],
        "torch": libraries["torch"],
        "transformers": libraries["transformers"],
        "cuda_devices": sees["devices"],
        "rdma_devices": [adapter["name"] for adapter in adapters],
        "memory": room,
        "disk": disk(Path(os.environ.get("TMPDIR", "/tmp")) if folder is None else folder),
        "gpus": gpus(run),
        "nvlinks": nvlinks(run),
        "cuda": sees,
        "nics": nics(sys_root),
        "rdma": adapters,
        "packages": libraries,
        "transports": transports,
        "transport": next((name for name, lack in transports.items() if lack is None), None),
        "ways": path_choices(transports, bool(sees["devices"])),
    }
    return {**facts, "missing": missing(facts)}


def lines_of(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the facts as lines of text for people."""
    room, store = facts["memory"], facts["disk"]
    yield f"{'processor':<18} {facts['cpus']} cores for this process"
    yield f"{'memory':<18} {_gb(room['total'])}, {_gb(room['available'])} free; arenas in {room['arenas']}"
    yield f"{'shared memory':<18} {_gb(room['shared'])} in /dev/shm; {_locked(room['locked'])}"
    rate = store["read_bytes_per_s"]
    rate_text = "rate not known" if rate is None else f"{rate / 1e6:,.0f} MB/s past the page cache"
    yield f"{'disk':<18} {store['folder']}: {rate_text}, {_gb(store['free_bytes'])} free"
    for gpu in facts["gpus"]:
        label, size = f"GPU {gpu['index']}", _gb(gpu["memory_bytes"])
        yield f"{label:<18} {gpu['name']}, {size}, driver {gpu['driver']}"
    for nvlink in facts["nvlinks"]:
        first, second = nvlink["gpus"]
        yield f"{'NVLink':<18} GPU {first} and GPU {second}: {nvlink['links']} links"
    yield f"{'torch sees':<18} {_devices(facts['cuda'])}"
    for nic in facts["nics"]:
        if nic["hardware"]:
            speed = "of no known speed" if nic["gbps"] is None else f"{nic['gbps']:g} Gbit/s"
            yield f"{'network':<18} {nic['name']}: {'up' if nic['up'] else 'down'}, {speed}"
    for adapter in facts["rdma"]:
        kind = "hardware" if adapter["hardware"] else "software"
        yield f"{'RDMA':<18} {adapter['name']} ({kind}): {_ports(adapter)}"
    for name, version in facts["packages"].items():
        yield f"{name:<18} {version or 'not installed'}"
    for name, lack in facts["transports"].items():
        yield f"{'transport ' + name:<24} {lack or 'works here'}"
    yield "What is used:"
    for path, by in facts["ways"].items():
        yield f"  {path}: {by}"
    yield "Missing:" if facts["missing"] else "Nothing is missing."
    for sentence in facts["missing"]:
        yield f"  {sentence}"


def _gb(size_bytes: int | None) -> str:
    return "?" if size_bytes is None else f"{size_bytes / _GIGA:,.1f} GB"


def _locked(size_bytes: int | None) -> str:
    return "any amount may be locked" if size_bytes is None else f"{size_bytes:,} bytes may be locked"


def _devices(sees: Mapping[str, Any]) -> str:
    build = "" if sees["build"] is None else f" (built for CUDA {sees['build']})"
    return (", ".join(sees["devices"]) or "no GPU") + build


def _ports(device: Mapping[str, Any]) -> str:
    parts = [
        f"port {port['port']} {port['link'] or 'of no known kind'} {'active' if port['active'] else 'down'}"
        + ("" if port["gbps"] is None else f" {port['gbps']:g} Gbit/s")
        for port in device["ports"]
    ]
    return ", ".join(parts) or "no ports"
