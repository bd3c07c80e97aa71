"""Which libraries are installed, and which GPUs torch sees."""

import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from typing import Any, Final

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
    found: dict[str, Any] = {"devices": [], "build": None, "nccl": None, "fault": None}
    if version("torch") is None:
        return found
    try:
        import torch

        found["build"] = torch.version.cuda
        found["devices"] = [torch.cuda.get_device_name(one) for one in range(torch.cuda.device_count())]
        if found["devices"]:
            found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    except (
        ImportError,
        OSError,
        RuntimeError,
        AttributeError,
    ) as error:  # incompatible libraries
        found["fault"] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return found


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
