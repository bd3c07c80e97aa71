"""GPUs, network and RDMA adapters, as the system lists them. No torch is needed."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

SYS: Final = Path("/sys")
# Timeout in seconds for a program: a driver that hangs counts as missing.
_PATIENCE_S: Final = 20.0
_GPU_FIELDS: Final = ("index", "name", "memory.total", "driver_version", "pci.bus_id")
MIB: Final = 1 << 20
_GIGABIT: Final = 1000  # Mbit/s
Ran = Callable[[Sequence[str]], str | None]


def ran(words: Sequence[str]) -> str | None:
    """Return what a program of the system prints; None if it is missing or fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_PATIENCE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def gpus(run: Ran = ran) -> list[dict[str, Any]]:
    """List NVIDIA's GPUs by its driver: ``index``, ``name``, ``memory_bytes``, ``driver``, ``bus``."""
    output = run(["nvidia-smi", f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader,nounits"])
    devices = []
    for line in (output or "").splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == len(_GPU_FIELDS) and parts[0].isdecimal():
            index, name, mib, driver, bus = parts
            size = int(float(mib) * MIB) if mib.replace(".", "").isdecimal() else None
            devices.append(
                {"index": int(index), "name": name, "memory_bytes": size, "driver": driver, "bus": bus}
            )
    return devices


def nvlinks(run: Ran = ran) -> list[dict[str, Any]]:
    """List pairs of GPUs joined by NVLink: ``gpus`` and the number of ``links``, from the driver's matrix."""
    rows = [line.split() for line in (run(["nvidia-smi", "topo", "-m"]) or "").splitlines()]
    rows = [row for row in rows if row and row[0].startswith("GPU") and row[0][3:].isdecimal()]
    # The header line begins with a GPU's name too; in other rows one cell per GPU follows the name.
    cells = {int(row[0][3:]): row[1:] for row in rows if len(row) > 1 and not row[1].startswith("GPU")}
    links = []
    for pair, row in sorted(cells.items()):
        for other, cell in enumerate(row[: len(cells)]):
            if other > pair and cell.startswith("NV") and cell[2:].isdecimal():
                links.append({"gpus": [pair, other], "links": int(cell[2:])})
    return links


def nics(sys_root: Path = SYS) -> list[dict[str, Any]]:
    """List Ethernet and InfiniBand adapters: ``name``, ``up``, ``gbps`` (None if not reported),
    ``hardware`` (False: loopback, bridges and the like)."""
    names = []
    for folder in _folders(sys_root / "class" / "net"):
        speed = _text(folder / "speed")
        known = speed is not None and speed.isdecimal() and int(speed) > 0
        names.append(
            {
                "name": folder.name,
                "up": _text(folder / "operstate") == "up",
                "gbps": int(speed) / _GIGABIT if known and speed is not None else None,
                "hardware": (folder / "device").exists(),
            }
        )
    return names


def rdma(sys_root: Path = SYS) -> list[dict[str, Any]]:
    """List RDMA devices: ``name``, ``hardware`` (False: software over Ethernet), ``ports`` with facts."""
    adapters = []
    for folder in _folders(sys_root / "class" / "infiniband"):
        ports = [_port(port) for port in _folders(folder / "ports")]
        adapters.append({"name": folder.name, "hardware": (folder / "device").exists(), "ports": ports})
    return adapters


def _port(folder: Path) -> Mapping[str, Any]:
    state, rate = _text(folder / "state") or "", _text(folder / "rate") or ""
    gbps = rate.partition(" ")[0]
    return {
        "port": int(folder.name) if folder.name.isdecimal() else 0,
        "link": _text(folder / "link_layer"),
        "active": state.endswith("ACTIVE"),  # 4: ACTIVE
        "gbps": float(gbps) if gbps.replace(".", "", 1).isdecimal() else None,  # 100 Gb/sec (4X EDR)
    }


def _folders(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:  # some of these files cannot be read while an adapter is down
        return None
