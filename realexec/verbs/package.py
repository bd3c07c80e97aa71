"""Finds a usable pyverbs: one of this interpreter, Debian's (python3-pyverbs, of one version), or none.

PyPI's package of that name is built against a newer rdma-core than distributions have, and may be installed
but fail to load. So each pyverbs is imported before it counts as usable; the first one that loads is used.
"""

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from realexec.system.devices import SYS, rdma
from realexec.system.import_check import fault_of_import, first_line

SYSTEM_PYTHON: Final = Path("/usr/bin/python3")
DEVICE: Final = "SERVETWIN_RDMA_DEVICE"
# The port used of an adapter with several ports.
PORT: Final = 1
_DEBIAN: Final = Path("/usr/lib/python3/dist-packages/pyverbs")
_NAME: Final = "pyverbs"
_MODULES: Final = ("addr", "cq", "device", "mr", "pd", "pyverbs_error", "qp", "wr")
# Newer versions have the constants in another module.
_CONSTANTS: Final = ("enums", "libibverbs_enums")
_GET: Final = "write `apt-get install python3-pyverbs ibverbs-providers`"
NO_DEVICE: Final = (
    "no RDMA device is present: load your adapter's driver, or `rdma_rxe` for software RDMA over Ethernet"
)
NO_PYVERBS: Final = f"pyverbs is not installed: {_GET}"


def missing(sys_root: Path = SYS) -> str | None:
    """Return why this machine cannot use RDMA: no pyverbs that loads, no device, no port that is up."""
    if not here() and (fault := beside()) is not None:
        own = _own()[1]
        faults = "; ".join([*own, fault] if fault else own)
        return f"no pyverbs can be imported ({faults}): {_GET}" if faults else NO_PYVERBS
    return _without_port(rdma(sys_root))


def devices(sys_root: Path = SYS) -> list[str]:
    """Return the names of the devices that may be used: all, or the one that the environment names."""
    wanted = os.environ.get(DEVICE)
    return [wanted] if wanted else [adapter["name"] for adapter in rdma(sys_root)]


def here() -> bool:
    """Whether this interpreter can load a pyverbs."""
    return _own()[0] is not None


def beside() -> str | None:
    """Return why the system's interpreter cannot load pyverbs in a process of its own: None if it can, "" if
    the interpreter or its pyverbs does not exist."""
    if not SYSTEM_PYTHON.exists() or not any(_DEBIAN.glob("device.*.so")):
        return ""
    fault = fault_of_import([f"{_NAME}.{name}" for name in _MODULES], SYSTEM_PYTHON)
    return None if fault is None else f"that of {_DEBIAN} by {SYSTEM_PYTHON}: {fault}"


def verbs() -> SimpleNamespace:
    """Return pyverbs' classes, and its constants as ``e``."""
    own, faults = _own()
    if own is None:
        raise ImportError("; ".join(faults) or NO_PYVERBS)
    return own


@cache
def _own() -> tuple[SimpleNamespace | None, tuple[str, ...]]:
    """Load the first pyverbs that can be loaded; return it and the faults of those before it."""
    faults: list[str] = []
    for where, spec in _candidates():
        try:
            return _loaded(spec), tuple(faults)
        except Exception as error:  # an incompatible library may raise any exception
            _forget()
            faults.append(f"that of {where}: {first_line(error)}")
    return None, tuple(faults)


def _candidates() -> Iterator[tuple[str, Any]]:
    """Yield each location and its import spec: this interpreter's own first, then the distribution's."""
    module_spec = importlib.util.find_spec(_NAME)
    if module_spec is not None:
        yield str(Path(module_spec.origin).parent if module_spec.origin else _NAME), module_spec
    if any((_DEBIAN / f"device{suffix}").exists() for suffix in importlib.machinery.EXTENSION_SUFFIXES):
        # Only this package: its folder also holds all others of the system's interpreter.
        places = [str(_DEBIAN)]
        spec = importlib.util.spec_from_file_location(
            _NAME, _DEBIAN / "__init__.py", submodule_search_locations=places
        )
        yield str(_DEBIAN), spec


def _loaded(spec: Any) -> SimpleNamespace:
    sys.modules[_NAME] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    modules = [importlib.import_module(f"{_NAME}.{name}") for name in _MODULES]
    names = {name: value for module in modules for name, value in vars(module).items()}
    return SimpleNamespace(**names | {"e": _constants()})


def _constants() -> Any:
    first, second = _CONSTANTS
    try:
        return importlib.import_module(f"{_NAME}.{first}")
    except ImportError:
        return importlib.import_module(f"{_NAME}.{second}")


def _forget() -> None:
    """Drop the modules of a pyverbs that failed to load, or the next one would use them."""
    for name in [name for name in sys.modules if name == _NAME or name.startswith(f"{_NAME}.")]:
        del sys.modules[name]


def _without_port(adapters: list[dict[str, Any]]) -> str | None:
    wanted = os.environ.get(DEVICE)
    if wanted and wanted not in [adapter["name"] for adapter in adapters]:
        return f"{DEVICE} names {wanted}, and there is no such RDMA device: write one that `rdma link` lists"
    usable = [adapter for adapter in adapters if not wanted or adapter["name"] == wanted]
    if not usable:
        return NO_DEVICE
    if any(port["active"] and port["port"] == PORT for adapter in usable for port in adapter["ports"]):
        return None
    names = ", ".join(adapter["name"] for adapter in usable)
    return f"port {PORT} of no RDMA device is active ({names}): see `rdma link` and the cable"
