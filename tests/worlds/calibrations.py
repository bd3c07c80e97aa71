"""Calibrations on workers that are made up: their steps follow a law, and so does their clock."""

import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from realexec.calibration.bench import Bench
from realexec.calibration.calibrate import (
    KV_SENDS,
    MESSAGES,
    STARTS,
    CalibrationResult,
    link_name,
    measured,
    sources_of,
)
from realexec.calibration.done_log import DoneLog
from realexec.calibration.grid import CalibrationPlan, Step, plan_of
from realexec.calibration.sends import told_of
from realexec.transport_registry import TRANSPORTS
from realexec.wire.messages import Forget, FromWorker, Hold, RunSteps, StepsDone, TakeOut, ToWorker
from servetwin.config.compose.compose import load_config
from servetwin.run.calibrated import fleet_of, kv_tokens_of, record_of, write_profile

Law = Callable[[int, int, int, int], float]
VOCABULARY: Final = 512
_RATE: Final = {"repeats": 2, "median_bytes_per_s": 1e9, "p10_bytes_per_s": 9e8, "p90_bytes_per_s": 1.1e9}
_TIME: Final = {"repeats": 2, "median_us": 90.0, "p10_us": 80.0, "p90_us": 99.0, "mean_us": 91.0}


def law_us(prompt_tokens: int, chunks: int, sequences: int, context: int) -> float:
    """Of a step whose chunks begin at 0, or not."""
    prompts = chunks * 900.0 + 110.0 * prompt_tokens
    return prompts + (2500.0 + 60.0 * sequences + 0.6 * context if sequences else 0.0)


class MadeUpWorker:
    """Answers runs at once: its steps take what the law says, on a clock of its own."""

    def __init__(self, number: int, inbox: "queue.SimpleQueue[tuple[int, FromWorker]]", law: Law) -> None:
        self._number, self._inbox, self._law = number, inbox, law
        self._known: dict[int, int] = {}
        self._decoding: set[int] = set()
        self.now_ns = 1_000 * number

    def send(self, message: ToWorker) -> None:
        match message:
            case Hold(request, prompt):
                self._known[request] = len(prompt)
            case TakeOut(request):
                self._decoding.remove(request)
            case Forget(request):
                del self._known[request]
                self._decoding.discard(request)
            case RunSteps():
                self._inbox.put((self._number, self._run(message)))

    def _run(self, run: RunSteps) -> StepsDone:
        began_ns, ends_ns, chunks, decode = self.now_ns, [], run.chunks, run.decode
        for _ in range(run.max_steps):
            batch = sorted(self._decoding) if decode else []
            tokens, context = sum(chunk[2] for chunk in chunks), sum(self._known[one] for one in batch)
            self.now_ns += round(1e3 * self._law(tokens, len(chunks), len(batch), context))
            ends_ns.append(self.now_ns)
            for request in batch:
                self._known[request] += 1
            for request, start, count in chunks:
                if start + count == self._known[request]:
                    self._known[request] += 1
                    self._decoding.add(request)
            chunks, decode = (), True
        return StepsDone(
            epoch=run.epoch,
            started_ns=began_ns,
            ends_ns=tuple(ends_ns),
            tokens={},
            finished=(),
            running=False,
        )


def bench(
    plan: CalibrationPlan,
    log: DoneLog,
    law: Law = law_us,
    wall_over_cpu: float = 1.0,
    on_progress: Callable[[int, int], None] | None = None,
) -> Bench:
    """Two workers; the first one's clock counts for all."""
    inbox: queue.SimpleQueue[tuple[int, FromWorker]] = queue.SimpleQueue()
    workers = [MadeUpWorker(number, inbox, law) for number in range(2)]

    def now_ns() -> int:
        return sum(worker.now_ns for worker in workers)

    return Bench(
        workers=list(workers),
        inbox=inbox,
        plan=plan,
        log=log,
        vocabulary=VOCABULARY,
        cpu_ns=lambda _: round(now_ns() / wall_over_cpu),
        on_progress=on_progress,
        now_ns=now_ns,
    )


def others(log: DoneLog, sources: tuple[str, ...]) -> None:
    """Numbers for all that is no step."""
    memory = {"repeats": 2, "median_s": 0.2, "p10_s": 0.1, "p90_s": 0.3, "mean_s": 0.2}
    log.add(STARTS, {"process_s": 2.5, "memory": memory})
    log.add(MESSAGES, dict(_TIME))
    log.add(KV_SENDS, told_of([(65_536, 0.0055)], [(1_065_536, 0.0065)]))
    for name in (*sources, *map(link_name, TRANSPORTS)):
        log.add(name, dict(_RATE))


def profile(
    folder: Path, law: Law = law_us, wall_over_cpu: float = 1.0, words: tuple[str, ...] = ()
) -> tuple[CalibrationResult, dict[str, Any]]:
    """A profile in ``folder``, as ``realexec calibrate`` writes it of such workers."""
    config = load_config([f"out={folder}", *words], "realexec")
    engine = config.engine
    plan = plan_of(engine.max_num_seqs, engine.max_num_batched_tokens, kv_tokens_of(config), 2, quick=False)
    with DoneLog(folder.with_name(f"{folder.name}.log"), {}) as log:
        bench(plan, log, law, wall_over_cpu).run()
        others(log, tuple(sources_of(fleet_of(config, plan))))
        found = measured(fleet_of(config, plan), plan, log)
    record = record_of(config, found) | {"took_s": 1.0}
    write_profile(folder, config, found, record)
    return found, record


def step(found: CalibrationResult, *counts: int) -> float:
    """Microseconds of one step that was measured."""
    return found.steps[Step(*counts)].median
