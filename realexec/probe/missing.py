"""Names what this machine lacks for real workers and how to get it, in one sentence each."""

from collections.abc import Callable, Mapping
from typing import Any, Final

# A run by verbs or NIXL registers arenas; with a smaller limit on locked memory that is refused.
LOCKED_BYTES: Final = 1 << 30
Facts = Mapping[str, Any]


def missing(facts: Facts) -> list[str]:
    """Return one sentence for each missing thing; empty if nothing is missing."""
    return [sentence for rule in _RULES if (sentence := rule(facts))]


def _real(facts: Facts) -> str | None:
    if facts["torch"] is None or facts["transformers"] is None:
        return (
            "Real workers need torch and transformers: write `pip install 'servetwin[real]'`, or "
            "`make test-real` in a checkout."
        )
    return None


def _cuda(facts: Facts) -> str | None:
    listed, sees = facts["gpus"], facts["cuda"]
    if sees["devices"]:
        return None
    if sees["fault"] is not None:
        return f"torch cannot list GPUs ({sees['fault']}): install it anew."
    if listed:
        build = "a build for CPUs" if sees["build"] is None else f"built for CUDA {sees['build']}"
        return (
            f"nvidia-smi lists {len(listed)} GPUs (driver {listed[0]['driver']}) and torch, {build}, sees "
            "none: install a CUDA build of torch that fits the driver, and look at CUDA_VISIBLE_DEVICES."
        )
    return (
        "No CUDA device is visible, so workers run on the CPU: for GPUs install NVIDIA's driver and "
        "a CUDA build of torch."
    )


def _rdma(facts: Facts) -> str | None:
    devices = facts["rdma"]
    if not devices:
        return (
            "No RDMA device is present: install rdma-core and load your adapter's driver, or `rdma_rxe` for "
            "software RDMA over an Ethernet device."
        )
    if not any(port["active"] for device in devices for port in device["ports"]):
        return (
            "No port of an RDMA device is active: see `rdma link` and the cable, or the network device below."
        )
    return None


def _pyverbs(facts: Facts) -> str | None:
    if facts["rdma"] and facts["packages"]["pyverbs"] is None:
        return (
            "There is an RDMA device, and no pyverbs to use it: install Debian's python3-pyverbs, for the "
            "package index has none that works with Debian's libraries."
        )
    return None


def _broken(facts: Facts) -> str | None:
    """Report packages that are installed but cannot be imported, with the transport's reason."""
    installed = {
        "nixl": facts["packages"]["nixl"] is not None,
        "verbs": facts["packages"]["pyverbs"] is not None and bool(facts["rdma"]),
    }
    lacks = {name: facts["transports"].get(name) for name, there in installed.items() if there}
    lacking = [f"transport={name}: {lack}" for name, lack in lacks.items() if lack and "imported" in lack]
    return "; ".join(lacking) + "." if lacking else None


def _locked(facts: Facts) -> str | None:
    locked = facts["memory"]["locked"]
    if facts["rdma"] and locked is not None and locked < LOCKED_BYTES:
        return (
            f"A process may lock {locked:,} bytes, too few to register an arena with an adapter: raise "
            "`ulimit -l`, or memlock in /etc/security/limits.conf."
        )
    return None


def _nixl(facts: Facts) -> str | None:
    if facts["packages"]["nixl"] is None:
        return (
            "transport=nixl (UCX: RDMA, shared memory and TCP behind one interface) needs `pip install nixl`."
        )
    return None


def _ray(facts: Facts) -> str | None:
    if facts["packages"]["ray"] is None:
        return "launcher=ray, workers on several hosts, needs `pip install 'servetwin[ray]'`."
    return None


def _disk(facts: Facts) -> str | None:
    if not facts["disk"]["direct"]:
        return (
            f"The rate of the disk of {facts['disk']['folder']} is not known, for nothing can be read past "
            "the page cache there: name a folder of another file system with folder=DIR."
        )
    return None


_RULES: Final[tuple[Callable[[Facts], str | None], ...]] = (
    _real, _cuda, _rdma, _pyverbs, _broken, _locked, _nixl, _ray, _disk,
)  # fmt: skip
