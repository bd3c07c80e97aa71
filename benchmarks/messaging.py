"""python -m benchmarks.messaging [ROUNDS]: CPU time of a message between driver and worker.

A round is a message to a worker and one back, as in a run: `RunSteps` and `StepsDone` of 8 requests in 1 or
in 44 steps, or `Hold` of a prompt of 2,000 tokens and `Alive`. Counted is the CPU time of both processes, for
our connection and for a pipe of `multiprocessing` that pickles the same objects, in turn.
"""

import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.command import command, count
from realexec.driver.processes import WorkerPool
from realexec.wire.messages import Alive, Hold, Ready, RunSteps, StepsDone
from realexec.worker.worker_process import Control
from serving.vocabulary.errors import UserError

ROUNDS = 3000
TURNS = 5
START_S = 60.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def report(steps: int) -> StepsDone:
    begins = time.monotonic_ns()
    ends = tuple(begins + 5_000_000 * step for step in range(steps))
    tokens = {request: tuple(range(request, request + steps)) for request in range(100, 108)}
    return StepsDone(epoch=0, started_ns=begins, ends_ns=ends, tokens=tokens, finished=(), running=True)


CASES: dict[str, tuple[Any, Any]] = {
    "run of 1 step": (RunSteps(0, (), True, 1, True), report(1)),
    "run of 44 steps": (RunSteps(0, (), True, 44, True), report(44)),
    "prompt of 2,000": (Hold(5, tuple(range(2000)), (), 100), Alive()),
}


def answer(message: Any) -> Any:
    if isinstance(message, Hold):
        return CASES["prompt of 2,000"][1]
    return CASES["run of 1 step" if message.max_steps == 1 else "run of 44 steps"][1]


def bounce(control: Control, start: Mapping[str, Any]) -> None:
    """A worker that answers at once."""
    control.send(Ready())
    while True:
        control.send(answer(control.recv()))


def bounce_pipe(pipe: Connection) -> None:
    while True:
        pipe.send(answer(pipe.recv()))


def cpu_s(process: int) -> float:
    """User and system time so far, of this process or of another."""
    if process == os.getpid():
        return time.process_time()
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS_PER_S


def round_us(process: int, once: Callable[[Any], Any], message: Any, rounds: int) -> float:
    began = cpu_s(os.getpid()) + cpu_s(process)
    for _ in range(rounds):
        once(message)
    return (cpu_s(os.getpid()) + cpu_s(process) - began) / rounds * 1e6


def main(words: list[str]) -> None:
    if len(words) > 1:
        raise UserError(f"it takes one number of rounds and {words[1]!r} was given too: leave it out")
    rounds = count(words[0], "number of rounds", str(ROUNDS)) if words else ROUNDS
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    other = context.Process(target=bounce_pipe, args=(theirs,), daemon=True)
    other.start()
    with WorkerPool(1, {}, 0, 1, entry="benchmarks.messaging:bounce") as pool:
        pool.wait_ready(START_S)

        def by_wire(message: Any) -> None:
            pool.workers[0].send(message)
            pool.inbox.get()

        def by_pipe(message: Any) -> None:
            ours.send(message)
            ours.recv()

        print(f"{rounds} rounds, median of {TURNS} turns: CPU us of a message and its answer, both processes")
        for name, (message, _) in CASES.items():
            by_wire(message), by_pipe(message)
            wire: list[float] = []
            pipe: list[float] = []
            for _ in range(TURNS):
                wire.append(round_us(pool.workers[0].process.pid, by_wire, message, rounds))
                pipe.append(round_us(other.pid or 0, by_pipe, message, rounds))
            print(f"{name:16s} wire {statistics.median(wire):6.1f}   pipe {statistics.median(pipe):6.1f}")
    other.kill()
    sys.stdout.flush()


if __name__ == "__main__":
    command("benchmarks.messaging", __doc__, main)
