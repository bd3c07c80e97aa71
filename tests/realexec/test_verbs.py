"""RDMA verbs: what no other transport has. Runs where a device is (make test-rdma), else is skipped."""

import importlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from realexec.memory.arena import Arena
from realexec.system.import_check import _tried, fault_of_import
from realexec.transport_registry import missing, opened
from realexec.transports.base import BadSegment, PeerLost, Segment
from realexec.verbs import helper, package
from realexec.verbs.transport import VerbsTransport
from tests.worlds.arena_peers import serving
from tests.worlds.refusals import refuses

MB = 1 << 20
LACK = missing()["verbs"]
here = pytest.mark.skipif(LACK is not None, reason=str(LACK))


@here
def test_verbs_refuse_a_key_that_nobody_gave_and_go_on() -> None:
    with serving("verbs", MB) as peer, Arena.create(MB) as arena:
        transport = opened("verbs", arena)
        wrong = transport.connect({**peer.address, "key": peer.address["key"] ^ 0x5500})
        for _ in range(2):
            with pytest.raises(BadSegment, match="refuses a read of its memory: IBV_WC_REM_ACCESS_ERR"):
                wrong.read([Segment(0, 0, MB)])
        assert not any(arena.buffer), "nothing of it came"
        link = transport.connect(peer.address)
        link.read([Segment(8, 8, 8)])
        assert bytes(arena.buffer[8:16]) == (0x9E3779B97F4A7C15).to_bytes(8, "little")
        transport.close()


@here
def test_verbs_peers_devices_look_whether_a_segment_is_within() -> None:
    with serving("verbs", MB) as peer, Arena.create(8 * MB) as arena:
        transport = opened("verbs", arena)
        link = transport.connect({**peer.address, "size_bytes": 8 * MB})
        refuses(BadSegment, "refuses", link.read, [Segment(2 * MB, 0, MB)])
        link.read([Segment(0, 0, MB)])
        transport.close()


@here
def test_verbs_tell_a_killed_peer() -> None:
    with serving("verbs", MB) as peer, Arena.create(MB) as arena:
        transport = opened("verbs", arena)
        link = transport.connect(peer.address)
        link.read([Segment(0, 0, MB)])
        os.kill(peer.process.pid, signal.SIGKILL)
        peer.process.wait()
        with pytest.raises(PeerLost):
            while True:
                link.read([Segment(0, 0, MB)])
        transport.close()


@here
def test_verbs_renew_a_queue_pair_that_went_wrong() -> None:
    with serving("verbs", MB) as peer, Arena.create(MB) as arena:
        transport = VerbsTransport(arena)
        link = transport.connect(peer.address)
        link._connections._idle[0]._pair.renew()  # this end knows nothing of the other any more
        link.read([Segment(8, 8, 8)])
        assert bytes(arena.buffer[8:16]) == (0x9E3779B97F4A7C15).to_bytes(8, "little")
        transport.close()


@here
def test_verbs_through_a_process_of_the_systems_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "here", lambda: False)
    with serving("verbs", MB) as peer, Arena.create(MB) as arena:
        transport = VerbsTransport(arena)
        assert isinstance(transport._device, helper.RemoteDevice)
        link = transport.connect(peer.address)
        link.read([Segment(8, 8, 8), Segment(0, 16, 1000)])
        assert bytes(arena.buffer[8:16]) == (0x9E3779B97F4A7C15).to_bytes(8, "little")
        wrong = transport.connect({**peer.address, "key": peer.address["key"] ^ 0x5500})
        refuses(BadSegment, "REM_ACCESS_ERR", wrong.read, [Segment(0, 0, MB)])
        os.kill(peer.process.pid, signal.SIGKILL)
        with pytest.raises(PeerLost):
            while True:
                link.read([Segment(0, 0, MB)])
        transport.close()


@pytest.fixture
def no_pyverbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine without one: tests put theirs in the folder, where this interpreter finds it first."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyverbs"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    monkeypatch.setattr(package, "_DEBIAN", tmp_path / "debian" / "pyverbs")
    monkeypatch.delenv(package.DEVICE, raising=False)
    package._own.cache_clear()
    yield tmp_path
    package._own.cache_clear()
    package._forget()


def make_pyverbs(folder: Path, fault: str = "", constants: str = "enums") -> Path:
    """One that says where it is, or raises at its third module."""
    folder.mkdir(parents=True)
    for name in ("__init__", *package._MODULES, constants):
        (folder / f"{name}.py").write_text(f"{name.upper()} = {str(folder)!r}\n")
    (folder / "device.py").write_text(f"{fault}\nDEVICE = {str(folder)!r}\n")
    return folder


def sysfs(root: Path, **ports: str) -> Path:
    for name, state in ports.items():
        port = root / "class" / "infiniband" / name / "ports" / "1"
        port.mkdir(parents=True, exist_ok=True)
        (port / "state").write_text(f"{state}\n")
    return root


BROKEN = "raise OSError('libibverbs.so.1: version IBVERBS_1.14 not found')"


def test_what_keeps_a_machine_from_rdma_is_told(no_pyverbs: Path) -> None:
    assert package.missing(no_pyverbs) == package.NO_PYVERBS and not package.here()
    make_pyverbs(no_pyverbs / "site" / "pyverbs")
    package._own.cache_clear()
    importlib.invalidate_caches()
    assert package.missing(no_pyverbs / "none") == package.NO_DEVICE


def test_a_device_counts_once_its_port_is_up(no_pyverbs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_pyverbs(no_pyverbs / "site" / "pyverbs")
    root = sysfs(no_pyverbs, mlx5_0="1: DOWN")
    assert "port 1 of no RDMA device is active (mlx5_0)" in str(package.missing(root))
    sysfs(root, rxe0="4: ACTIVE")
    assert package.missing(root) is None and package.devices(root) == ["mlx5_0", "rxe0"]
    monkeypatch.setenv(package.DEVICE, "mlx5_0")
    assert "active (mlx5_0)" in str(package.missing(root)) and package.devices(root) == ["mlx5_0"]
    monkeypatch.setenv(package.DEVICE, "mlx5_9")
    assert "names mlx5_9, and there is no such RDMA device" in str(package.missing(root))


def test_a_pyverbs_that_cannot_be_imported_is_not_taken_for_one(no_pyverbs: Path) -> None:
    broken = make_pyverbs(no_pyverbs / "site" / "pyverbs", BROKEN)
    lack = str(package.missing(sysfs(no_pyverbs, rxe0="4: ACTIVE")))
    assert lack.startswith(f"no pyverbs can be imported (that of {broken}: OSError: libibverbs.so.1: version")
    assert "apt-get install python3-pyverbs" in lack and not package.here()
    refuses(ImportError, "libibverbs", package.verbs)


@pytest.mark.parametrize("constants", ["enums", "libibverbs_enums"])
def test_the_distributions_pyverbs_is_taken_where_the_own_one_is_broken(
    no_pyverbs: Path, monkeypatch: pytest.MonkeyPatch, constants: str
) -> None:
    make_pyverbs(no_pyverbs / "site" / "pyverbs", BROKEN)
    debian = make_pyverbs(no_pyverbs / "debian" / "pyverbs", constants=constants)
    monkeypatch.setattr("importlib.machinery.EXTENSION_SUFFIXES", [".py"])
    assert package.here() and package.missing(sysfs(no_pyverbs, rxe0="4: ACTIVE")) is None
    found = package.verbs()
    assert {found.ADDR, found.DEVICE, found.WR} == {str(debian)}, "no part of the broken one is left"
    assert getattr(found.e, constants.upper()) == str(debian)


def test_the_systems_interpreter_has_to_import_it_too(
    no_pyverbs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has modules that it finds, and they raise."""
    debian = make_pyverbs(no_pyverbs / "debian" / "pyverbs", BROKEN)
    (debian / "device.other.so").touch()
    system = no_pyverbs / "python3"
    system.write_text(f'#!/bin/sh\nPYTHONPATH={debian.parent} exec {sys.executable} "$@"\n')
    system.chmod(0o755)
    monkeypatch.setattr(package, "SYSTEM_PYTHON", system)
    root = sysfs(no_pyverbs, rxe0="4: ACTIVE")
    assert f"that of {debian} by {system}: OSError: libibverbs" in str(package.missing(root))
    (debian / "device.py").write_text("")
    _tried.cache_clear()
    assert package.beside() is None and package.missing(root) is None and not package.here()


def test_an_import_that_ends_the_process_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_up_fault.py").write_text("import os; os.abort()")
    monkeypatch.syspath_prepend(tmp_path)
    assert fault_of_import(["json"]) is None
    assert "ended with status -6" in str(fault_of_import(["made_up_fault"]))
    assert "No such file" in str(fault_of_import(["json"], tmp_path / "none"))
