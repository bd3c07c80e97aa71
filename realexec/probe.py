"""What this machine can run, and what to install for more."""

import importlib.metadata
import os
from pathlib import Path
from typing import Any, Final

from realexec.transports import registry

# Where Linux lists RDMA devices, hardware or software (rdma_rxe).
INFINIBAND: Final = Path("/sys/class/infiniband")


def probe(infiniband: Path = INFINIBAND) -> dict[str, Any]:
    """Facts about this machine: ``cpus``, ``memory_bytes``, ``torch``, ``transformers`` (versions or None),
    ``cuda_devices``, ``rdma_devices`` (names), ``transports`` (what keeps this machine from each, or None),
    ``transport`` (by which workers read each other's memory, unless a run says another), and ``missing``
    (sentences, empty when nothing is).
    """
    transports = registry.missing()
    torch = _version("torch")
    transformers = _version("transformers")
    cuda = _cuda_devices() if torch else []
    rdma = sorted(path.name for path in infiniband.iterdir()) if infiniband.is_dir() else []
    return {
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "torch": torch,
        "transformers": transformers,
        "cuda_devices": cuda,
        "rdma_devices": rdma,
        "transports": transports,
        "transport": next((name for name, lack in transports.items() if lack is None), None),
        "missing": _missing(torch, transformers, cuda, rdma),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cuda_devices() -> list[str]:
    try:
        import torch
    except (ImportError, OSError):  # a broken installation: libraries of another version or platform
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def _missing(torch: str | None, transformers: str | None, cuda: list[str], rdma: list[str]) -> list[str]:
    missing = []
    if torch is None or transformers is None:
        missing.append(
            "Real workers need torch and transformers: write `pip install 'servetwin[real]'`, or "
            "`make test-real` in a checkout."
        )
    if not cuda:
        missing.append(
            "No CUDA device is visible, so workers run on the CPU: for GPUs install NVIDIA's driver and "
            "a CUDA build of torch."
        )
    if not rdma:
        missing.append(
            "No RDMA device is present: install rdma-core and load your adapter's driver, or `rdma_rxe` for "
            "software RDMA over an Ethernet device."
        )
    return missing
