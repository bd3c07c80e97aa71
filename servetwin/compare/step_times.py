"""Compares all steps and sends of real journals with the simulation's times for them.

A step is priced as it really ran, with its chunks and contexts, so earlier differences do not count. Times of
sends are taken from each run's own journal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.step_times.rows import FIXED_PER_S
from servetwin.assemble.hardware import hardware_of
from servetwin.assemble.world_rows import world_rows
from servetwin.compare.divergence import journal_lines, parsing
from servetwin.config.compose.resolved import read_resolved
from servetwin.results.journal_file import NAME
from servetwin.story.cluster_state import ClusterState, StepReport
from serving.record.journal import parse_action, parse_event
from serving.vocabulary.actions import Chunk, Run, Send
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Ran, Sent
from simcore.replica.lifetime import Lifetime
from simcore.replica.step_times import StepTimes
from simcore.replica.whole_prompts import of_run

_NS_PER_MS: Final = 1e6
_MS_PER_S: Final = 1e3


@dataclass(frozen=True, slots=True)
class Taken:
    """One report of a run, or one send. ``amount``: its number of steps, or of bytes.

    ``simulated_ms``: 0 for a send, because its simulated time is unknown.
    """

    kind: str
    amount: int
    took_ms: float
    simulated_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkRow:
    """Mean times of ``count`` reports or sends of one kind; ``amount``: their steps, or bytes, in total."""

    kind: str
    count: int
    amount: int
    real_ms: float
    simulated_ms: float | None

    @property
    def ratio(self) -> float | None:
        """Simulated over real."""
        return self.simulated_ms / self.real_ms if self.simulated_ms is not None and self.real_ms else None


def step_rows(simulated: Path, real: Sequence[Path]) -> list[WorkRow] | str:
    """Return mean times by kind of step, or a sentence with the reason why they are not available."""
    try:
        times = world_rows(hardware_of(read_resolved(simulated / "config.yaml")))
    except (UserError, HardwareError, OSError) as error:
        return f"step times by kind are not told: {error}"
    steps = [step for folder in real if (folder / NAME).is_file() for step in steps_of(folder, times)]
    kinds: dict[str, list[Taken]] = {}
    for step in steps:
        kinds.setdefault(step.kind, []).append(step)
    return [_of_steps(kind, kinds[kind]) for kind in sorted(kinds)]


def _of_steps(kind: str, taken: Sequence[Taken]) -> WorkRow:
    steps = sum(step.amount for step in taken)
    real_ms, simulated_ms = sum(step.took_ms for step in taken), sum(step.simulated_ms for step in taken)
    return WorkRow(kind, len(taken), steps, real_ms / steps, simulated_ms / steps)


def send_rows(simulated: Path, real: Sequence[Path]) -> list[WorkRow]:
    """Return mean times of completed sends by content."""
    theirs = [send for folder in real if (folder / NAME).is_file() for send in sends_of(folder)]
    ours = list(sends_of(simulated)) if (simulated / NAME).is_file() else []
    rows = []
    for kind in sorted({transfer.kind for transfer in theirs}):
        of_real, of_sim = (
            [transfer for transfer in side if transfer.kind == kind] for side in (theirs, ours)
        )
        took_ms = sum(transfer.took_ms for transfer in of_real) / len(of_real)
        sim_ms = sum(transfer.took_ms for transfer in of_sim) / len(of_sim) if of_sim else None
        rows.append(
            WorkRow(kind, len(of_real), sum(transfer.amount for transfer in of_real), took_ms, sim_ms)
        )
    return rows


def sends_of(folder: Path) -> Iterator[Taken]:
    """Yield each completed send, timed from its action to its report."""
    begun: dict[int, tuple[int, str]] = {}
    with parsing(folder / NAME):
        for at_ns, event, actions, *_ in journal_lines(folder / NAME):
            fact = parse_event(event)
            if isinstance(fact, Sent) and fact.transfer in begun:
                since_ns, transfer = begun.pop(fact.transfer)
                if not fact.cause:
                    yield Taken(transfer, fact.moved_bytes, (at_ns - since_ns) / _NS_PER_MS)
            for fields in actions:
                action = parse_action(fields)
                if isinstance(action, Send):
                    begun[action.transfer] = at_ns, action.what


def steps_of(folder: Path, times: Mapping[str, StepTimes]) -> Iterator[Taken]:
    """Yield each report's steps, timed from the previous report or the run's begin to the report.

    Passes over some layers and batches of pipelines are left out: they wait for other things than steps.
    """
    state, reported_ns = ClusterState(), dict[int, int]()
    with parsing(folder / NAME):
        for at_ns, event, actions, *_ in journal_lines(folder / NAME):
            fact = parse_event(event)
            before = _before(state, fact.replica) if isinstance(fact, Ran) else None
            state.happens(at_ns, fact)
            if isinstance(fact, Ran):
                report, since_ns = state.report, reported_ns.get(fact.replica, 0)
                reported_ns[fact.replica] = at_ns
                if before is not None and report is not None and fact.steps and _is_plain(report.run):
                    took_ms = (at_ns - max(since_ns, report.began_ns)) / _NS_PER_MS
                    yield _taken(fact, report, before, times, took_ms)
            for fields in actions:
                state.follows(at_ns, parse_action(fields))


@dataclass(frozen=True, slots=True)
class _Before:
    """State before a report: prompts and tokens of all requests, contexts of those decoding there."""

    lives: dict[int, Lifetime]
    contexts: dict[int, int]


def _before(state: ClusterState, replica: int) -> _Before:
    lives = {}
    for number, progress in state.requests.items():
        lifetime = lives[number] = Lifetime(progress.request, 0)
        lifetime.generated = progress.made
    decoding = state.instance(replica).decoding
    contexts = {
        request: state.requests[request].request.prompt_tokens + state.made(state.requests[request])
        for request in decoding
    }
    return _Before(lives, contexts)


def _is_plain(run: Run | None) -> bool:
    return run is not None and run.layers is None and run.micro_batch < 0 and not run.path


def _taken(
    fact: Ran, report: StepReport, before: _Before, times: Mapping[str, StepTimes], took_ms: float
) -> Taken:
    """Price the steps of a report in order, each with the requests that decode in it."""
    assert report.run is not None
    lives, contexts, computed = before.lives, dict(before.contexts), report.computed
    requests = [*(chunk[0] for chunk in computed), *contexts, *report.joined]
    rows = of_run(times[lives[requests[0]].request.model], lives) if requests else None
    joins = {request: at for request, at in report.joined.items() if request in lives}
    contexts.update(
        {number: lives[number].request.prompt_tokens + max(1, lives[number].generated) for number in joins}
    )
    fixed = 0
    for at in range(fact.steps):
        chunks: tuple[Chunk, ...] = () if at else computed
        members = [request for request in contexts if joins.get(request, 0) <= at]
        if chunks and not report.run.decode:
            members = []
        if rows is not None and (members or chunks):
            fixed += _cost(rows, [contexts[request] for request in members], chunks)
        for request in members:
            contexts[request] += 1
        if chunks and not report.run.hand_over:
            contexts.update(
                {
                    request: lives[request].request.prompt_tokens + lives[request].generated + 1
                    for request in report.completed
                }
            )
    kind = _kind(fact.steps, computed, report, len(before.contexts) if report.run.decode else 0, lives)
    return Taken(kind, fact.steps, took_ms, fixed / FIXED_PER_S * _MS_PER_S)


def _cost(rows: StepTimes, contexts: Sequence[int], chunks: Sequence[Chunk]) -> int:
    n, context = len(contexts), sum(contexts)
    if chunks:
        return rows.mixed(n, context, chunks)
    return next((cost + slope * context for limit, cost, slope in rows.decode(n) if context <= limit), 0)


def _kind(
    steps: int, chunks: Sequence[Chunk], report: StepReport, decoding: int, lives: Mapping[int, Lifetime]
) -> str:
    if not chunks:
        return "decodes alone"
    if steps > 1:
        return "prompts, then decodes"
    parts = any(start or request not in report.completed for request, start, _ in chunks)
    kind = "part of a prompt" if parts else "a whole prompt" if len(chunks) == 1 else "several prompts"
    return f"{kind} beside decodes" if decoding else kind
