"""The wall-clock driver: worker processes, one per GPU, and a run of requests on them under a controller."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from realexec.processes import WorkerPool
from realexec.report import RunReport
from realexec.tracking import Tracker
from realexec.world.actions import CARRIES_OUT, World
from realexec.world.arrivals import Arrivals
from realexec.world.execution import Controller, Execution, Journal
from realexec.world.slots import Slots
from serving.vocabulary.errors import UserError
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.request import Request
from serving.vocabulary.units import NS_PER_S

__all__ = ["CARRIES_OUT", "execute"]

# A worker is heard of at every finish, at the end of a run and about once a second in between; a single step
# of a small model is far shorter than this.
REPORT_TIMEOUT_S = 300.0


def execute(
    controller: Controller,
    requests: Iterable[tuple[Request, int]],
    workers: int,
    model: Mapping[str, Any],
    seed: int,
    batch_size: int,
    recorder: Recorder,
    journal: Journal | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    start_timeout_s: float = 120,
    report_timeout_s: float = REPORT_TIMEOUT_S,
) -> RunReport:
    """Run ``requests`` on ``workers`` processes (replica r is worker r) under ``controller``.

    ``requests`` yields (request, true output tokens) by ascending ``arrival_ns``; it is read as time goes on.
    ``model`` holds the model's configuration keys (`realexec.models.build_model`), ``batch_size`` the rows of
    every decode batch: the most requests that may decode at once on a replica. ``on_progress`` gets (ended,
    arrived) counts after every event. A worker silent for ``report_timeout_s`` with a run in flight is
    ended and lost. Raises UserError for what a user can correct, RuntimeError when the controller leaves
    requests unserved or asks for what workers cannot do (loads, places, hand-overs); all processes are ended
    before this returns or raises.
    """
    if workers < 1 or batch_size < 1:
        raise UserError("workers and batch_size must both be at least 1.")
    if "vocab_size" not in model:
        raise UserError("model.vocab_size is missing; write the number of token ids prompts may use.")
    arrivals = Arrivals(requests, seed, model["vocab_size"])
    launched_ns = time.monotonic_ns()
    with WorkerPool(workers, model, seed, batch_size) as pool:
        pool.wait_ready(start_timeout_s)
        tracker, slots = Tracker(recorder, workers), Slots(pool, range(workers))
        world = World(slots, tracker, int(model.get("num_hidden_layers", 1)), range(workers))
        execution = Execution(controller, pool, world, tracker, journal, report_timeout_s, opens=False)
        start_s = (execution.start_ns - launched_ns) / NS_PER_S
        return execution.run(arrivals, on_progress, start_s)
