"""Names what this machine lacks for real workers and how to get it, in one sentence each."""

from collections.abc import Callable, Mapping
from typing import Any, Final

# A run by verbs or NIXL registers arenas; with a smaller limit on locked memory that is refused.
LOCKED_BYTES: Final = 1 << 30
Facts = Mapping[str, Any]


def missing(found: Facts) -> list[str]:
    """Return one sentence for each missing thing; empty if nothing is missing."""
    return [sentence for rule in _RULES if (sentence := rule(found))]


def _real(found: Facts) -> str | None:
    if found["torch"] is None or found["transformers"] is None:
        return (
            "Real workers need torch and transformers: write `pip install 'servetwin[real]'`, or "
            "`make test-real` in a checkout."
        )
    return None


def _cuda(found: Facts) -> str | None:
    listed, sees = found["gpus"], found["cuda"]
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


def _rdma(found: Facts) -> str | None:
    devices = found["rdma"]
    if not devices:
        return (
            "No RDMA device is present: install rdma-core and load your adapter's driver, or `rdma_rxe` for "
            "software RDMA over an Ethernet device."
        )
    if not any(port["active"] for one in devices for port in one["ports"]):
        return (
            "No port of an RDMA device is active: see `rdma link` and the cable, or the network device below."
        )
    return None


def _pyverbs(found: Facts) -> str | None:
    if found["rdma"] and found["packages"]["pyverbs"] is None:
        return (
            "There is an RDMA device, and no pyverbs to use it: install Debian's python3-pyverbs, for the "
            "package index has none that works with Debian's libraries."
        )
    return None


def _broken(found: Facts) -> str | None:
    """Report packages that are installed but cannot be imported, with the transport's reason."""
    installed = {
        "nixl": found["packages"]["nixl"] is not None,
        "verbs": found["packages"]["pyverbs"] is not None and bool(found["rdma"]),
    }
    lacks = {name: found["transports"].get(name) for name, there in installed.items() if there}
    told = [f"transport={name}: {lack}" for name, lack in lacks.items() if lack and "imported" in lack]
    return "; ".join(told) + "." if told else None


def _locked(found: Facts) -> str | None:
    locked = found["memory"]["locked"]
    if found["rdma"] and locked is not None and locked < LOCKED_BYTES:
        return (
            f"A process may lock {locked:,} bytes, too few to register an arena with an adapter: raise "
            "`ulimit -l`, or memlock in /etc/security/limits.conf."
        )
    return None


def _nixl(found: Facts) -> str | None:
    if found["packages"]["nixl"] is None:
        return (
            "transport=nixl (UCX: RDMA, shared memory and TCP behind one interface) needs `pip install nixl`."
        )
    return None


def _ray(found: Facts) -> str | None:
    if found["packages"]["ray"] is None:
        return "launcher=ray, workers on several hosts, needs `pip install 'servetwin[ray]'`."
    return None


def _disk(found: Facts) -> str | None:
    if not found["disk"]["direct"]:
        return (
            f"The rate of the disk of {found['disk']['folder']} is not known, for nothing can be read past "
            "the page cache there: name a folder of another file system with folder=DIR."
        )
    return None


_RULES: Final[tuple[Callable[[Facts], str | None], ...]] = (
    _real, _cuda, _rdma, _pyverbs, _broken, _locked, _nixl, _ray, _disk,
)  # fmt: skip
