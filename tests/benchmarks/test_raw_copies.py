"""Bounds of loads: as many bytes, in pieces of the same sizes, in turn with what they bound."""

from pathlib import Path

import numpy as np
import pytest

from realexec.memory.arena import Arena

pytest.importorskip("torch")

from benchmarks import raw_copies
from benchmarks.loads import Turns, in_turn, row


def test_a_copy_moves_every_piece() -> None:
    """From the given source to the given target, and nothing beyond the pieces."""
    with Arena.create(10_000) as source, Arena.create(10_000) as target:
        source.buffer[:] = bytes([7]) * 10_000
        copy = raw_copies.MemoryCopy([4096, 1000], (source.buffer, target.buffer))
        assert copy.rate() > 0
        assert np.flatnonzero(np.frombuffer(target.buffer, np.uint8)).tolist() == list(range(5096))
        del copy


def test_pieces_beyond_the_block_go_through_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """No piece is cut, also one that is larger than the block."""
    monkeypatch.setattr(raw_copies, "MOST_BLOCK_BYTES", 100)
    places, block = raw_copies.placed([60, 40, 60, 50])
    assert block == 100
    assert [(place.start, place.stop) for place in places] == [(0, 60), (60, 100), (0, 60), (0, 50)]
    assert raw_copies.placed([150, 20])[1] == 150


def test_loopback_brings_all_bytes_twice() -> None:
    """The connection stays open between two measurements."""
    link = raw_copies.Loopback(3_000_000, 1 << 20)
    try:
        assert link.rate() > 0 < link.rate()
    finally:
        link.close()


def test_files_are_read_whole_by_both_ways(tmp_path: Path) -> None:
    """Two files, of which neither is a multiple of what one call reads."""
    for name, size in (("a", 20 << 20), ("b", 5)):
        (tmp_path / f"{name}.safetensors").write_bytes(bytes(size))
    read = raw_copies.FileRead(tmp_path)
    assert read.rate() > 0


def test_loads_and_their_bound_are_measured_in_turn() -> None:
    """One of each is not counted; then a load, its bound, a load, ..."""
    done: list[str] = []

    class Counted:
        def rate(self) -> float:
            done.append("bound")
            return 4e9

    def load() -> tuple[float, int]:
        done.append("load")
        return 2e9, 1000

    rates, raw = in_turn(load, Counted())
    assert done == ["load", "bound"] * (len(rates) + 1)
    assert len(rates) == len(raw) == 9
    assert "share 0.50" in row(Turns("from a peer", rates, "memory to memory", raw))
    assert "no bound" in row(Turns("from their source", rates, "", []))
