"""The block of shared memory of a process: its allocator, and how others map it."""

import gc
import json
import os
from pathlib import Path
from random import Random

import pytest

from realexec.memory import arena as arenas
from realexec.memory.arena import PAGE_BYTES, Arena, ArenaFull, Region
from serving.vocabulary.errors import UserError
from tests.worlds.processes import started
from tests.worlds.refusals import refuses


def pages_bytes(arena: Arena) -> int:
    return os.fstat(arena.descriptor).st_blocks * 512


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="files have other blocks")
def test_bytes_that_are_not_touched_take_no_memory_until_they_are_written() -> None:
    size, touched = 1 << 20, 64 << 10
    with Arena.create(size, touched) as arena:
        assert pages_bytes(arena) == touched + PAGE_BYTES, "and the page of the owner's word"
        with Arena.attach(arena.handle, touched=True) as other:
            assert pages_bytes(arena) == touched + PAGE_BYTES
            arena.buffer[-1] = 7
            assert other.buffer[-1] == 7
        assert pages_bytes(arena) == touched + 2 * PAGE_BYTES
    with Arena.create(size, 0) as arena:
        assert pages_bytes(arena) == PAGE_BYTES


def test_regions_do_not_overlap_and_all_comes_back() -> None:
    drawn = Random(7)
    with Arena.create(10_000) as arena:
        held: list[Region] = []
        for _ in range(2000):
            if held and drawn.random() < 0.5:
                arena.give(held.pop(drawn.randrange(len(held))))
                continue
            align = drawn.choice([1, 8, 64, 512])
            try:
                region = arena.take(drawn.randrange(1, 900), align)
            except ArenaFull:
                continue
            assert region.offset % align == 0 and region.offset + region.size_bytes <= 10_000
            for other in held:
                apart = region.offset + region.size_bytes <= other.offset
                assert apart or other.offset + other.size_bytes <= region.offset
            held.append(region)
            assert arena.free_bytes == 10_000 - sum(one.size_bytes for one in held)
        for region in held:
            arena.give(region)
        assert arena.take(10_000) == Region(0, 10_000), "the gaps have become one again"


def test_what_is_not_taken_is_not_given_and_what_does_not_fit_is_told() -> None:
    with Arena.create(256) as arena:
        region = arena.take(100)
        refuses(ArenaFull, "129 bytes asked of an arena whose largest gap is 156", arena.take, 129)
        for wrong in (Region(0, 99), Region(64, 100)):
            refuses(ValueError, "is not taken", arena.give, wrong)
        arena.give(region)
        refuses(ValueError, "is not taken", arena.give, region)


def test_another_process_maps_the_same_bytes() -> None:
    with Arena.create(100_000) as arena:
        region = arena.take(5)
        arena.view(region)[:] = b"there"
        code = (
            "import json, sys; from realexec.memory.arena import Arena\n"
            "arena = Arena.attach(json.loads(sys.argv[1]), touched=True)\n"
            "print(bytes(arena.buffer[:5]).decode(), arena.size_bytes, arena.served)\n"
            "arena.buffer[:5] = b'again'"
        )
        with started(code, json.dumps(arena.handle)) as process:
            out, err = process.communicate()
        assert (out, err) == ("there 100000 True\n", "")
        assert bytes(arena.view(region)) == b"again"


def test_the_handle_of_an_arena_that_is_gone_opens_nothing_else() -> None:
    with Arena.create(4096) as arena:
        handle = arena.handle
    with pytest.raises(OSError):
        Arena.attach(handle)
    with Arena.create(4096) as other, pytest.raises(FileNotFoundError, match="no longer the same memory"):
        Arena.attach({**other.handle, "inode": handle["inode"] + 1_000_000})
    with Arena.create(4096) as other, pytest.raises(ValueError, match="does not have 999999 bytes"):
        Arena.attach({**other.handle, "size_bytes": 999_999})


def test_views_outlive_a_closed_arena() -> None:
    arena = Arena.create(64)
    view = arena.view(arena.take(4))
    attached = Arena.attach(arena.handle)
    arena.close()
    arena.close()
    assert not attached.served
    view[:] = b"held"
    assert bytes(attached.buffer[:4]) == b"held"
    attached.close()


def test_more_than_the_machine_has_is_refused_in_a_sentence() -> None:
    before = set(Path("/proc/self/fd").iterdir())
    refuses(UserError, "does not fit into this machine's memory", Arena.create, 1 << 60)
    gc.collect()
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_where_there_is_no_memfd_a_file_stands_in_and_goes_with_its_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(arenas.os, "memfd_create", raising=False)
    with Arena.create(5000) as arena:
        path = Path(arena.handle["path"])
        assert path.stat().st_mode & 0o077 == 0
        with Arena.attach(arena.handle) as attached:
            arena.buffer[:2] = b"ok"
            assert bytes(attached.buffer[:2]) == b"ok"
        assert path.exists()
    assert not path.exists()
