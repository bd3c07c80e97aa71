"""Scripts: generators that drive one worker through a unit of work and return its steps with their times.

A script yields runs and receives the worker's report of each; messages without an answer go out by ``tell``.
A step is timed from the end of the previous step to its own end, because in that time the worker always had
work. A run's first step therefore includes the time to request the run.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Final

from realexec.calibration.grid import CalibrationPlan, Step
from realexec.wire.messages import Forget, Hold, RunSteps, StepsDone, TakeOut, ToWorker
from serving.vocabulary.actions import Chunk

Tell = Callable[[ToWorker], None]
Timed = tuple[Step, float]
Script = Generator[RunSteps, StepsDone, list[Timed]]
NS_PER_US: Final = 1e3
# Ids of a script's extra requests start here; no two scripts run on one worker at a time.
_EXTRA: Final = 10_000
_FILLER_STEPS: Final = 20


class _Clock:
    """Remembers when the last step ended, by the worker's clock."""

    def __init__(self) -> None:
        self._ended_ns: int | None = None

    def since(self, done: StepsDone) -> float:
        """Return the microseconds of a run of one step, from the end of the previous step."""
        began_ns = done.started_ns if self._ended_ns is None else self._ended_ns
        self._ended_ns = done.ends_ns[-1]
        return (self._ended_ns - began_ns) / NS_PER_US


def script_of(unit: int, plan: CalibrationPlan, tell: Tell, vocabulary: int) -> Script:
    """Return the script for a unit of the plan."""
    return _prompts(plan, tell, vocabulary) if unit == 0 else _contexts(unit, plan, tell, vocabulary)


def _tokens(count: int, seed: int, vocabulary: int) -> tuple[int, ...]:
    """Make a prompt. Its content does not matter, because every token costs the same."""
    return tuple([(7 * place + 13 * seed) % vocabulary for place in range(count)])


def _one_step(chunks: Sequence[Chunk], decode: bool) -> RunSteps:
    return RunSteps(0, tuple(chunks), decode, 1, False)


def _prompts(plan: CalibrationPlan, tell: Tell, vocabulary: int) -> Script:
    """Measure prompts alone, one at a time and several in a step."""
    clock, timed = _Clock(), list[Timed]()
    warm_up = (plan.prompts[0], 1)
    kinds = [warm_up, *((tokens, 1) for tokens in plan.prompts)]
    kinds += [(plan.batch_tokens, chunks) for chunks in plan.chunks]
    for tokens, chunks in kinds:
        each = tokens // chunks
        for request in range(chunks):
            tell(Hold(request, _tokens(each, request, vocabulary), (), 2))
        done = yield _one_step([(request, 0, each) for request in range(chunks)], False)
        timed.append((Step(each * chunks, chunks, 0, 0, 0), clock.since(done)))
        for request in range(chunks):
            tell(Forget(request))
    for tokens in plan.last_chunks:
        timed.append((yield from _last_chunk(tokens, plan, clock, tell, vocabulary)))
    return timed[1:]


def _last_chunk(
    tokens: int, plan: CalibrationPlan, clock: _Clock, tell: Tell, vocabulary: int
) -> Generator[RunSteps, StepsDone, Timed]:
    """Measure the chunk after a full step's: like all but whole prompts, it is laid out in its prompt."""
    first = plan.batch_tokens
    tell(Hold(0, _tokens(first + tokens, 0, vocabulary), (), 2))
    clock.since((yield _one_step([(0, 0, first)], False)))
    done = yield _one_step([(0, first, tokens)], False)
    tell(Forget(0))
    return Step(tokens, 1, first, 0, 0), clock.since(done)


def _contexts(context: int, plan: CalibrationPlan, tell: Tell, vocabulary: int) -> Script:
    """Measure sequences of one length: last chunks of prompts, prompts beside them, decodes of ever fewer."""
    timed = list[Timed]()
    for request in range(plan.sequences[0]):
        timed += yield from _filled(request, context, plan, tell, vocabulary)
    length = context + 1  # the next step gets the token that each prompt sampled
    for place, n in enumerate(plan.sequences):
        for request in range(n, plan.sequences[place - 1] if place else n):
            tell(TakeOut(request))
        done = yield RunSteps(0, (), True, plan.steps + 1, False)
        ends_ns = done.ends_ns
        for at in range(1, len(ends_ns)):  # not the first step: it includes the wait for the request
            took_us = (ends_ns[at] - ends_ns[at - 1]) / NS_PER_US
            timed.append((Step(0, 0, 0, n, n * (length + at)), took_us))
        length += len(ends_ns)
        for extra, tokens in enumerate(plan.mixed if place == 0 else ()):
            mixed = yield from _mixed(
                extra=extra, tokens=tokens, n=n, length=length, tell=tell, vocabulary=vocabulary
            )
            timed.append(mixed)
            length += 1
    for request in range(plan.sequences[0]):
        tell(Forget(request))
    return _averaged(timed)


def _filled(request: int, context: int, plan: CalibrationPlan, tell: Tell, vocabulary: int) -> Script:
    """Compute a prompt chunk by chunk; time its last chunk if others came before.

    The worker lays a chunk out as if the whole prompt were there, so that tokens stay exact. So an earlier
    chunk costs as much as the last one (or less, if it is cut), as the model states (``prompt_blocks``).
    """
    tell(Hold(request, _tokens(context, request, vocabulary), (), plan.decoded + 1))
    clock, took_us, last = _Clock(), 0.0, (0, 0)
    for start in range(0, context, plan.batch_tokens):
        last = start, min(plan.batch_tokens, context - start)
        done = yield _one_step([(request, *last)], False)
        took_us = clock.since(done)
    start, tokens = last
    return [(Step(tokens, 1, start, 0, 0), took_us)] if start else []


def _mixed(
    *, extra: int, tokens: int, n: int, length: int, tell: Tell, vocabulary: int
) -> Generator[RunSteps, StepsDone, Timed]:
    """Measure a prompt in one step with ``n`` sequences of ``length``."""
    request = _EXTRA + 1 + extra
    tell(Hold(request, _tokens(tokens, extra, vocabulary), (), 2))
    done = yield _one_step([(request, 0, tokens)], True)
    tell(Forget(request))
    took_us = (done.ends_ns[0] - done.started_ns) / NS_PER_US
    return Step(tokens, 1, 0, n, n * length), took_us


def _averaged(timed: Sequence[Timed]) -> list[Timed]:
    """Merge steps of one kind into their mean time at their mean context."""
    kinds: dict[tuple[int, ...], list[Timed]] = {}
    for step, took_us in timed:
        kinds.setdefault(step[:4], []).append((step, took_us))
    return [_mean(rows) for rows in kinds.values()]


def _mean(rows: Sequence[Timed]) -> Timed:
    context = round(sum(step.context_tokens for step, _ in rows) / len(rows))
    took_us = sum(took for _, took in rows) / len(rows)
    return rows[0][0]._replace(context_tokens=context), took_us


def filler(tell: Tell, vocabulary: int) -> Generator[RunSteps, StepsDone, list[Timed]]:
    """Yield endless work for a worker that has none left while others are still measured."""
    while True:
        tell(Hold(0, _tokens(16, 0, vocabulary), (), _FILLER_STEPS + 1))
        yield _one_step([(0, 0, 16)], False)
        yield RunSteps(0, (), True, _FILLER_STEPS, False)
        tell(Forget(0))
