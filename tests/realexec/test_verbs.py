"""RDMA verbs: what no other transport has. Runs where a device is (make test-rdma), else is skipped."""

import os
import signal
import time
from pathlib import Path

import pytest

from realexec.memory.arena import Arena
from realexec.transports.base import BadSegment, PeerLost, Segment
from realexec.transports.registry import missing, opened
from realexec.verbs import helper, package
from realexec.verbs.transport import VerbsTransport
from tests.worlds.arena_peers import serving

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
        with pytest.raises(BadSegment, match="refuses"):
            link.read([Segment(2 * MB, 0, MB)])
        link.read([Segment(0, 0, MB)])
        transport.close()


@here
def test_verbs_tell_a_killed_peer_within_two_seconds() -> None:
    with serving("verbs", MB) as peer, Arena.create(MB) as arena:
        transport = opened("verbs", arena)
        link = transport.connect(peer.address)
        link.read([Segment(0, 0, MB)])
        os.kill(peer.process.pid, signal.SIGKILL)
        peer.process.wait()
        began_s = time.monotonic()
        with pytest.raises(PeerLost):
            while True:
                link.read([Segment(0, 0, MB)])
        assert time.monotonic() - began_s < 2
        transport.close()


@here
def test_verbs_renew_a_queue_pair_that_went_wrong() -> None:
    with serving("verbs", MB) as peer, Arena.create(MB) as arena:
        transport = VerbsTransport(arena)
        link = transport.connect(peer.address)
        link._idle[0]._pair.renew()  # this end knows nothing of the other any more
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
        with pytest.raises(BadSegment, match="REM_ACCESS_ERR"):
            wrong.read([Segment(0, 0, MB)])
        os.kill(peer.process.pid, signal.SIGKILL)
        with pytest.raises(PeerLost):
            while True:
                link.read([Segment(0, 0, MB)])
        transport.close()


def test_what_keeps_a_machine_from_rdma_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "here", lambda: False)
    monkeypatch.setattr(package, "beside", lambda: False)
    assert package.missing() == package.NO_PYVERBS
    monkeypatch.setattr(package, "beside", lambda: True)
    assert "rdma_rxe" in str(package.missing(tmp_path / "none"))
    (tmp_path / "mlx5_0").mkdir()
    assert package.missing(tmp_path) is None
