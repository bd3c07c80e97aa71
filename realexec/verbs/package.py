"""Where pyverbs is: in this interpreter, in Debian's (python3-pyverbs, of one version), or nowhere.

What PyPI has under that name is built against a newer rdma-core than distributions have.
"""

import importlib.machinery
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Final

INFINIBAND: Final = Path("/sys/class/infiniband")
SYSTEM_PYTHON: Final = Path("/usr/bin/python3")
_DEBIAN: Final = Path("/usr/lib/python3/dist-packages/pyverbs")
_MODULES: Final = ("addr", "cq", "device", "mr", "pd", "pyverbs_error", "qp", "wr")
NO_DEVICE: Final = (
    "no RDMA device is present: load your adapter's driver, or `rdma_rxe` for software RDMA over Ethernet"
)
NO_PYVERBS: Final = "pyverbs is not installed: write `apt-get install python3-pyverbs ibverbs-providers`"


def missing(infiniband: Path = INFINIBAND) -> str | None:
    """What keeps this machine from RDMA."""
    if not here() and not beside():
        return NO_PYVERBS
    return None if devices(infiniband) else NO_DEVICE


def devices(infiniband: Path = INFINIBAND) -> list[str]:
    """Their names."""
    return sorted(path.name for path in infiniband.iterdir()) if infiniband.is_dir() else []


def here() -> bool:
    """Whether this interpreter can load it."""
    return importlib.util.find_spec("pyverbs") is not None or _fits(_DEBIAN)


def beside() -> bool:
    """Whether the system's interpreter can, in a process of its own."""
    return SYSTEM_PYTHON.exists() and any(_DEBIAN.glob("device.*.so"))


@cache
def verbs() -> SimpleNamespace:
    """pyverbs' classes, and as ``e`` its constants, which newer versions have in another module."""
    if importlib.util.find_spec("pyverbs") is None:
        _add_package(_DEBIAN)
    found = [importlib.import_module(f"pyverbs.{name}") for name in _MODULES]
    try:
        constants = importlib.import_module("pyverbs.enums")
    except ImportError:
        constants = importlib.import_module("pyverbs.libibverbs_enums")
    names = {name: value for module in found for name, value in vars(module).items()}
    return SimpleNamespace(**names | {"e": constants})


def _fits(folder: Path) -> bool:
    return any((folder / f"device{suffix}").exists() for suffix in importlib.machinery.EXTENSION_SUFFIXES)


def _add_package(folder: Path) -> None:
    """This package alone: beside it lie all others of the system's interpreter."""
    where = [str(folder)]
    spec = importlib.util.spec_from_file_location(
        "pyverbs", folder / "__init__.py", submodule_search_locations=where
    )
    assert spec is not None and spec.loader is not None
    sys.modules["pyverbs"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
