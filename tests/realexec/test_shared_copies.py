"""One copy of a model in the memory of a machine, whatever number of workers; nothing is left of it."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from realexec.calibration.links import load_rate, starts_of
from realexec.driver.processes import WorkerPool
from realexec.memory.arena import Arena
from realexec.memory.shared_copies import SharedCopies
from realexec.wire.messages import Open
from tests.worlds.processes import patience_s, wait_until
from tests.worlds.real_runs import TINY

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux only"),
]


def mapped_bytes(process: int | str, kind: str) -> int:
    """Bytes of the shared copies in a process, as its `Rss` or as its share of them, `Pss`."""
    try:
        text = Path(f"/proc/{process}/smaps").read_text()
    except OSError:  # it has ended
        return 0
    parts = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.MULTILINE)
    found = [part for part in parts if "servetwin-copies" in part.partition("\n")[0]]
    sizes = [re.search(rf"^{kind}: +(\d+) kB", part, re.MULTILINE) for part in found]
    return 1024 * sum(int(size[1]) for size in sizes if size)


@contextmanager
def workers(copies: SharedCopies, transport: str) -> Iterator[tuple[WorkerPool, Any]]:
    """Two workers that have the model on their host."""
    with WorkerPool(2, TINY, 0, 4) as pool:
        pool.wait_ready(patience_s())
        opens = [
            Open(slot, 1 << 16, warm=True, host=True, paths=None, every_step=False, transport=transport)
            ._replace(copies=copies.handle)
            for slot in range(2)
        ]  # fmt: skip
        yield pool, starts_of(pool, opens, patience_s())[1]


@pytest.mark.parametrize("transport", ["shared_memory", "tcp"])
def test_two_workers_have_one_copy_and_nothing_is_left_when_they_are_killed(transport: str) -> None:
    """Their shares of it are one copy; each loads from its own host's and from the other's copy."""
    before = set(Path("/dev/shm").iterdir())
    copies = SharedCopies.create()
    with workers(copies, transport) as (pool, addresses):
        pids = [worker.process.pid for worker in pool.workers]
        whole = [mapped_bytes(pid, "Rss") for pid in pids]
        shares = [mapped_bytes(pid, "Pss") for pid in pids]
        for host in range(2):
            _, loaded = load_rate(pool, addresses[0]["layers"][0], ("host", host), patience_s())
            assert loaded <= whole[0]
        assert min(whole) > 0 and sum(shares) <= max(whole) + 2 * 4096
        for pid in pids:
            os.kill(pid, 9)
        wait_until(lambda: not any(mapped_bytes(pid, "Rss") for pid in pids), "the workers have ended")
    copies.close()
    assert set(Path("/dev/shm").iterdir()) <= before
    with pytest.raises(OSError):
        SharedCopies.attach(copies.handle, 4096)


def test_a_worker_that_was_killed_while_it_filled_them_is_made_up_for() -> None:
    """Its lock ends with it, and the next one fills them again; the one after that does not."""
    copies = SharedCopies.create()
    child = os.fork()
    if child == 0:
        with SharedCopies.attach(copies.handle, 10_000).filling():
            os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    one, other = (SharedCopies.attach(copies.handle, 10_000) for _ in range(2))
    with one.filling() as missing:
        assert missing
    with other.filling() as missing:
        assert not missing
    for opened in (one, other, copies):
        opened.close()


def test_arenas_share_their_first_bytes_and_nothing_else() -> None:
    """Also one that a peer attaches."""
    copies = SharedCopies.create()
    one, other = (SharedCopies.attach(copies.handle, 5000) for _ in range(2))
    with Arena.create(20_000, copies=one) as first, Arena.create(20_000, copies=other) as second:
        first.buffer[4999] = 7
        first.buffer[one.size_bytes] = 8
        with Arena.attach(second.handle, touched=True) as peer:
            assert peer.buffer[4999] == second.buffer[4999] == 7
            assert peer.buffer[one.size_bytes] == second.buffer[one.size_bytes] == 0
    for opened in (one, other, copies):
        opened.close()
