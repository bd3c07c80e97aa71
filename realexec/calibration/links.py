"""Measures how fast a worker reads another's memory by each transport, and parameters from their source."""

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from realexec.calibration.quiet import spread_of
from realexec.driver.processes import WorkerPool
from realexec.memory.arena import Arena
from realexec.transport_registry import DIRECT, opened
from realexec.transports.base import Link, Segment, Transport
from realexec.wire.messages import Died, Meet, Open, Opened, Pull, Pulled, Ready, RunSteps, StepsDone
from realexec.worker.worker_process import Control
from serving.vocabulary.errors import UserError

# A worker process with only an arena and a transport, to measure links without a model.

ENTRY = "realexec.calibration.links:serve"


def serve(control: Control, start: Mapping[str, Any]) -> None:
    """Handle messages until the driver disconnects: make an arena, connect to the other worker, read from it.

    The ``unit`` of a `Pull` is the number of bytes to read.
    """
    control.send(Ready())
    opening = control.recv()
    assert isinstance(opening, Open)
    with (
        Arena.create(opening.kv_bytes) as arena,
        closing(_transport(opening, arena, start["model"])) as transport,
    ):
        control.send(Opened(transport.address()))
        links: dict[int, Link] = {}
        while True:
            message = control.recv()
            if isinstance(message, Meet):
                others = [one for one in range(len(message.addresses)) if one != opening.slot]
                links = {one: transport.connect(message.addresses[one]) for one in others}
            elif isinstance(message, Pull):
                links[message.source[1]].read([Segment(0, 0, message.unit)])
                control.send(Pulled(message.load, message.unit, message.unit, ""))


def _transport(what: Open, arena: Arena, model: Mapping[str, Any]) -> Transport:
    """Open the transport. Only those that read the memory a device computes in need torch imported."""
    if what.transport not in DIRECT:
        return opened(what.transport, arena)
    from realexec.memory.device import device_for, device_of
    from realexec.memory.tensor_memory import ArenaMemory

    device = device_of(device_for(model["device"], what.slot))
    return opened(what.transport, arena, memory=ArenaMemory(arena, device, direct=True))


LARGE_BYTES: Final = 64 << 20
SMALL_BYTES: Final = 4096
MESSAGES: Final = 200


def wait_for(pool: WorkerPool, kind: type | tuple[type, ...], timeout_s: float) -> tuple[int, Any]:
    """Return (worker, message) for the next message of this kind; UserError if a worker dies instead."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            worker, message = pool.inbox.get(timeout=max(deadline_s - time.monotonic(), 0.01))
        except queue.Empty:
            raise UserError(
                f"no worker answered within {timeout_s:g} s: end what else keeps the cores busy and run again"
            ) from None
        if isinstance(message, Died):
            raise UserError(f"worker {worker} was lost ({message.cause}); correct the cause and run again")
        if isinstance(message, kind):
            return worker, message


def link_of(transport: str, repeats: int, timeout_s: float, device: str) -> dict[str, Any]:
    """Return bytes per second of a large read, and the time of a small one including its request message.

    Reads are between arenas, or between memories of this device if the transport reads those.
    """
    with WorkerPool(2, {"device": device}, 0, 1, entry=ENTRY) as pool:
        pool.wait_ready(timeout_s)
        addresses: dict[int, Any] = {}
        for slot, worker in enumerate(pool.workers):
            worker.send(
                Open(
                    slot=slot,
                    kv_bytes=LARGE_BYTES,
                    warm=False,
                    host=False,
                    paths=None,
                    every_step=False,
                    transport=transport,
                )
            )
        while len(addresses) < 2:
            slot, message = wait_for(pool, Opened, timeout_s)
            addresses[slot] = message.address
        pool.workers[1].send(Meet((addresses[0], addresses[1])))

        def pull(size_bytes: int) -> None:
            pool.workers[1].send(Pull(0, size_bytes, ("replica", 0), "replica"))
            wait_for(pool, Pulled, timeout_s)

        pull(LARGE_BYTES)
        large_s = [_seconds(lambda: pull(LARGE_BYTES)) for _ in range(repeats)]
        small_s = [_seconds(lambda: pull(SMALL_BYTES)) for _ in range(10 * repeats)]
    asked_s = spread_of(small_s).median
    rates = [LARGE_BYTES / max(seconds - asked_s, 1e-9) for seconds in large_s]
    return {
        **spread_of(rates).as_dict("bytes_per_s"),
        "read_of_4_kib_us": spread_of([seconds * 1e6 for seconds in small_s]).as_dict("us"),
    }


def copies_of(
    pool: WorkerPool, layers: int, source: tuple[str, int], repeats: int, timeout_s: float
) -> dict[str, Any]:
    """Return bytes per second at which worker 0 loads a whole model from ``source``, as named in `Pull`."""

    _, size_bytes = load_rate(pool, layers, source, timeout_s)
    rates = [load_rate(pool, layers, source, timeout_s)[0] for _ in range(repeats)]
    return {**spread_of(rates).as_dict("bytes_per_s"), "size_bytes": size_bytes}


def load_rate(pool: WorkerPool, layers: int, source: tuple[str, int], timeout_s: float) -> tuple[float, int]:
    """Let worker 0 load a whole model from ``source``; returns (bytes/s, bytes)."""
    began_s = time.monotonic()
    units = range(layers + 2)
    for unit in units:
        pool.workers[0].send(Pull(0, unit, source, "replica"))
    came = [wait_for(pool, Pulled, timeout_s)[1] for _ in units]
    if causes := [pulled.cause for pulled in came if pulled.cause]:
        raise UserError(f"parameters could not be read from {source[0]} ({causes[0]}): correct the cause")
    size_bytes = sum(pulled.size_bytes for pulled in came)
    return size_bytes / max(time.monotonic() - began_s, 1e-9), size_bytes


def messages_of(pool: WorkerPool, timeout_s: float) -> dict[str, Any]:
    """Return the microseconds from a message to its answer, for an idle worker."""

    def ask() -> None:
        pool.workers[0].send(RunSteps(0, (), True, 1, False))
        wait_for(pool, StepsDone, timeout_s)

    return spread_of([_seconds(ask) * 1e6 for _ in range(MESSAGES)]).as_dict("us")


def starts_of(pool: WorkerPool, opens: Sequence[Open], timeout_s: float) -> tuple[list[float], Any]:
    """Return each worker's seconds to make and fill its memory, one after the other, and the addresses."""
    found, addresses = [], []
    for worker, what in zip(pool.workers, opens, strict=True):
        began_s = time.monotonic()
        worker.send(what)
        addresses.append(wait_for(pool, Opened, timeout_s)[1].address)
        found.append(time.monotonic() - began_s)
    for worker in pool.workers:
        worker.send(Meet(tuple(addresses)))
    return found, addresses


def _seconds(work: Callable[[], object]) -> float:
    began_s = time.monotonic()
    work()
    return time.monotonic() - began_s
