"""One replica in virtual time: its resident requests and the run in progress.

A step counter makes a run O(1). A resident request ends when the counter reaches its ``end``; n requests
advance k steps by adding k to the counter and n * k to their total context. Time is fixed point throughout,
so consecutive runs carry their fractions of a nanosecond along.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from serving.vocabulary.actions import Chunk, Run, Span
from serving.vocabulary.events import Ran
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.units import FRACTION_BITS
from simcore.replica.lifetime import Lifetime, after_prompts
from simcore.replica.resident_requests import ResidentRequests
from simcore.replica.segment import steps_to_reach
from simcore.replica.stage_times import StageTimes
from simcore.replica.step_times import Pieces, StepTimes, later_piece

# Requests that join decode steps in progress: steps of a run that are booked before its report.

_AT_END = -1


class Joins:
    """State since a run's last report.

    before: the number of steps before each join; booked: steps, all before the present start of the run;
    waiting: requests that join at its end; late: (gap in fixed point, requests) of the last booked step,
    which may be in progress.
    """

    __slots__ = ("_gaps", "before", "booked", "late", "waiting")

    def __init__(self, gaps: Callable[[int, int, int, int], None]) -> None:
        self._gaps = gaps
        self.before: list[int] = []
        self.booked = 0
        self.late: list[tuple[int, int]] = []
        self.waiting: list[int] = []

    def settle(self) -> None:
        """The last booked step has ended: its tokens exist."""
        for gap, requests in self.late:
            self._gaps(gap, 0, 1, requests)
        self.late.clear()

    def book(self, waits: list[tuple[int, int]], first: int, slope: int, steps: int, residents: int) -> None:
        """Book steps of cost ``first + i * slope``; ``waits``: gaps that end with the first one."""
        self.settle()
        self.late += waits
        if steps > 1:
            self.settle()
            if steps > 2:
                self._gaps(first + slope, slope, steps - 2, residents)
            self.late.append((first + slope * (steps - 1), residents))
        self.booked += steps

    def now(self) -> None:
        """Let requests join after the booked steps."""
        self.before.append(self.booked)

    def at_end(self, requests: tuple[int, ...]) -> None:
        """Let requests join when the run ends, or continues with others."""
        self.before.append(_AT_END)
        self.waiting += requests

    def finish_run(self, steps: int) -> tuple[int, tuple[int, ...]]:
        """End the run after ``steps`` more steps: (steps since the last report, those before each join)."""
        self.settle()
        steps += self.booked
        before = tuple([steps if part == _AT_END else part for part in self.before])
        self.before.clear()
        self.waiting.clear()
        self.booked = 0
        return steps, before


# Step times of a replica with some of a model's layers: its layers' part of every step.


def layers_fixed(whole: int, first: int, last: int, model_layers: int) -> int:
    """The part of layers [first, last) in the fixed-point cost of a pass over all layers.

    Every layer takes the same part. If the cost does not divide evenly, a layer costs the growth of the
    rounded sum over the layers up to it, so the parts of a split add up to the whole exactly. The rest of a
    step (embedding, head, launch) is spread evenly over the layers.
    """
    return whole * last // model_layers - whole * first // model_layers


class PartSteps:
    """``StepTimes`` of layers [first, last) of a model, computed from those of the whole model."""

    __slots__ = ("_decode", "_first", "_last", "_model_layers", "_rows")

    def __init__(self, rows: StepTimes, layers: Span, model_layers: int) -> None:
        self._rows = rows
        self._first, self._last = layers
        self._model_layers = model_layers
        self._decode: dict[int, Pieces] = {}

    def decode(self, n: int) -> Pieces:
        """Linear pieces of the whole, each scaled to the part."""
        pieces = self._decode.get(n)
        if pieces is None:
            whole = self._rows.decode(n)
            pieces = tuple([(limit, self._part(cost), self._part(slope)) for limit, cost, slope in whole])
            self._decode[n] = pieces
        return pieces

    def mixed(self, n: int, context: int, chunks: Sequence[Chunk], spread: int = 0) -> int:
        """A step with prompt chunks."""
        return self._part(self._rows.mixed(n, context, chunks, spread))

    @property
    def skewed(self) -> bool:
        """As in the whole model."""
        return self._rows.skewed

    @property
    def output_token(self) -> int:
        """The layers' part."""
        return self._part(self._rows.output_token)

    def shift(self, n: int, spread: int) -> int:
        """As in the whole model: these are tokens."""
        return self._rows.shift(n, spread)

    def _part(self, whole: int) -> int:
        return layers_fixed(whole, self._first, self._last, self._model_layers)


# A pass over some of a model's layers: its cost, and the conditions on its run.


def layer_pass_cost_fixed(rows: StepTimes, run: Run, own: Span, model_layers: int) -> int:
    """Fixed-point cost of the one step of a ``run`` with layers, on a replica that holds layers ``own``.

    ``rows`` are those of a replica with all ``model_layers``.
    """
    assert run.layers is not None
    first, last = run.layers
    assert 0 <= first < last <= model_layers, (
        f"replica {run.replica} is to run layers {first} to {last} of a model that has {model_layers}"
    )
    assert own[0] <= first and last <= own[1], (
        f"replica {run.replica} is to run layers {first} to {last}, and holds layers {own[0]} to {own[1]}"
    )
    assert run.chunks and not run.decode and run.max_steps == 1, (
        f"replica {run.replica} is to run layers {first} to {last}: "
        "write one step, with prompts and without decodes"
    )
    if isinstance(rows, StageTimes):
        return rows.gpu_fixed(run.chunks, run.layers)
    whole = rows.mixed(0, 0, run.chunks)
    cost = layers_fixed(whole, first, last, model_layers)
    assert cost > 0, (
        f"a pass of {whole} units of fixed point is too short to be cut into {model_layers} layers"
    )
    return cost


class Machine(ResidentRequests):
    """Executes runs for one replica. Times passed to it must not decrease."""

    __slots__ = (
        "_busy_since_ns", "_due_fixed", "_first", "_head", "_joined", "_joins", "_layers", "_left",
        "_model_layers", "_model_rows", "_pieces", "_rows", "_slope", "_start_fixed", "_steps", "busy_ns",
        "due_ns", "run",
    )  # fmt: skip

    def __init__(
        self,
        id: int,
        rows: StepTimes,
        lives: dict[int, Lifetime],
        recorder: Recorder,
        *,
        model_layers: int = 0,
        layers: Span | None = None,
    ) -> None:
        """``rows``: step times of a replica with all layers. ``layers``: the layers it holds; None: all.

        ``model_layers``: number of layers of the model; without it the replica runs only whole passes.
        """
        super().__init__(id, lives, recorder, rows)
        self._model_rows = self._rows = rows
        self._model_layers = model_layers
        self._layers: Span = (0, model_layers) if layers is None else layers
        if self._layers != (0, model_layers):
            self._rows = part = PartSteps(rows, self._layers, model_layers)
            self._output_token = part.output_token
        self._pieces = self._rows.decode
        # The run in progress, from start to due: a first step with chunks (0 without), then steps of cost
        # first + i * slope. It continues from there while steps are ``left``.
        self.run: Run | None = None
        self._head = self._first = self._slope = self._steps = 0
        self._start_fixed = self._due_fixed = 0
        self._left = 0
        self._joins = Joins(recorder.gaps)
        self._joined = self._joins.before  # saves an attribute look-up on the hot path
        self.due_ns = -1
        self.busy_ns = 0
        self._busy_since_ns = -1  # -1 while idle

    def start(self, now_ns: int, run: Run) -> int:
        """Begin a run; returns when it is due."""
        assert self.run is None, "one pass at a time"
        if self._busy_since_ns < 0:
            self._busy_since_ns = now_ns
            self._start_fixed = now_ns << FRACTION_BITS
            if self._decoding and not self._delayed_groups:  # the residents had to wait
                self._delayed_groups.append([self._due_fixed, self._decoding])
        self.run = run
        if run.layers is not None:
            self._left = self._first = self._slope = self._steps = 0
            self._head = layer_pass_cost_fixed(self._model_rows, run, self._layers, self._model_layers)
            self._fix_due()
        elif run.chunks:
            self._left = run.max_steps - 1
            self._plan_chunks(run)
        else:
            self._left = run.max_steps
            self._plan_decodes()
        return self.due_ns

    def interrupt(self, now_ns: int, grace_steps: int) -> bool:
        """End the run at the first boundary not before now, or ``grace_steps`` later; True if due earlier.

        A step that begins now or later is the first step of grace.
        """
        if self.run is None:
            return False
        steps = grace_steps
        if steps and self._start_fixed >> FRACTION_BITS >= now_ns:
            steps -= 1
        if self._steps and not (self._joined and self._begins_later(now_ns)):
            steps += self._steps_by(now_ns)
        if steps < self._left:
            self._left = steps
        if steps >= self._steps:
            return False
        self._steps = steps
        self._fix_due()
        return True

    @property
    def first_step_ns(self) -> int:
        """Duration of the first step of the run just started."""
        return (self._head or self._first) >> FRACTION_BITS

    def pace(self, start_fixed: int, first: int, slope: int, steps: int) -> None:
        """Set the step times that the replica's group determines, beginning at ``start_fixed``."""
        self._start_fixed = start_fixed
        if self._head:
            self._head, first, slope, steps = first, 0, 0, 0
        self._first, self._slope, self._steps = first, slope, steps
        self._fix_due()

    def postpone(self, delay_ns: int) -> None:
        """Begin the run just started ``delay_ns`` later: its layers were not loaded yet."""
        self._start_fixed += delay_ns << FRACTION_BITS
        self._fix_due()

    def complete(self) -> Ran:
        """Complete the due run: account its steps, return its report. ``run`` is None unless it continues."""
        run, steps, head = self.run, self._steps, self._head
        assert run is not None
        finished: list[int] = []
        last_step_fixed = self._start_fixed
        if head:
            self._first_step(run, finished)
        if steps:
            first, slope, decoding = self._first, self._slope, self._decoding
            last_step_fixed = self._due_fixed - first - slope * (steps - 1)
            if self._delayed_groups:
                self._delayed.end_run(self._start_fixed + head, first, slope, steps, decoding)
            else:
                self._gaps(first, slope, steps, decoding)
            self._steps_done += steps
            self._context += steps * decoding
            self._left -= steps
        self._start_fixed = self._due_fixed
        ends = self._ends
        if ends and ends[0][0] <= self._steps_done:
            self._finish_decodes(finished, self.due_ns)
            finished.sort()
        if head:
            steps += 1
        joins: tuple[int, ...] = ()
        if self._joined:
            if self._joins.waiting:
                self._take_in(self._joins.waiting, self._due_fixed)
            steps, joins = self._joins.finish_run(steps)
        if self._left and self._decoding and not (finished and run.until_finish):
            self._plan_decodes()
            # No new batch is chosen at its end.
            return Ran(self.id, run.epoch, steps, tuple(finished), True, -1, joins)
        self.run = None
        last_ns = last_step_fixed >> FRACTION_BITS
        return Ran(self.id, run.epoch, steps, tuple(finished), False, last_ns, joins)

    def idle(self) -> None:
        """Note that no run followed the last one: the next one starts on a whole nanosecond."""
        self.busy_ns += self.due_ns - self._busy_since_ns
        self._busy_since_ns = -1

    def forget(self, request: int) -> None:
        """Drop a failed request; a pass that computes its prompt ends as planned without it."""
        run = self.run
        if run is not None and any(chunk[0] == request for chunk in run.chunks):
            self.run = replace(run, chunks=tuple([chunk for chunk in run.chunks if chunk[0] != request]))

    def preempt(self, request: int, preemptions: int = 1) -> None:
        """Take a request out at a step boundary; its tokens are kept. preemptions: 0 if it goes elsewhere."""
        self._take_out(request, self._due_fixed, preemptions)

    def join_batch(self, now_ns: int, requests: tuple[int, ...]) -> bool:
        """Let requests with tokens and KV from elsewhere decode here from the next boundary on.

        Returns whether a run continues with them. The run has no prompts, or reports before they join.
        """
        if self.run is None:
            self._take_in(requests, self._due_fixed)
            return False
        assert not self._head, "a request joins decode steps"
        steps = 0 if self._begins_later(now_ns) else self._steps_by(now_ns)
        if steps >= self._steps:
            self._joins.at_end(requests)
            return False
        if steps:
            self._pass(steps)
        self._joins.now()
        self._take_in(requests, self._start_fixed)
        self._plan_decodes()
        return True

    def _begins_later(self, now_ns: int) -> bool:
        """Whether steps are booked up to a boundary in the future that is not reported yet."""
        return self._joins.booked > 0 and self._start_fixed >> FRACTION_BITS >= now_ns

    def _steps_by(self, now_ns: int) -> int:
        """Decode steps of the run until the first boundary not before now; a step that begins now counts."""
        elapsed = (now_ns << FRACTION_BITS) - self._start_fixed - self._head
        return steps_to_reach(self._first, self._slope, elapsed) if elapsed > 0 or not self._head else 0

    def _pass(self, steps: int) -> None:
        """Book the first steps of the run, which then begins after them."""
        first, slope, decoding = self._first, self._slope, self._decoding
        waits = [(first, decoding)]
        if self._delayed_groups:
            waits = self._delayed.waits(self._start_fixed + first)
        self._joins.book(waits, first, slope, steps, decoding)
        self._start_fixed += steps * first + slope * (steps * (steps - 1) >> 1)
        self._steps_done += steps
        self._context += steps * decoding
        self._left -= steps

    def _fix_due(self) -> None:
        steps = self._steps
        cost = steps * self._first + self._slope * (steps * (steps - 1) >> 1)
        self._due_fixed = due_fixed = self._start_fixed + self._head + cost
        self.due_ns = due_fixed >> FRACTION_BITS

    def _plan_decodes(self) -> None:
        """Decode until the next request finishes, or the allowed steps are done."""
        assert self._decoding, "a decode run without resident requests"
        steps, left = self._ends[0][0] - self._steps_done, self._left
        self._head = 0
        largest = self._largest() if self._largest_context else 0
        self._plan_steps(self._decoding, self._context, largest, steps if steps < left else left)

    def _plan_chunks(self, run: Run) -> None:
        """Plan the first step, and the decode steps after it until a request finishes."""
        decoding, context = self._decoding, self._context
        chunks, residents = run.chunks, decoding if run.decode else 0
        largest = self._largest() if self._largest_context else 0
        spread = residents * largest - context if largest and residents else 0
        self._head = self._rows.mixed(residents, context, chunks, spread)
        if residents and self._output_token:
            self._head += self._generated_cost(context)
        steps = self._left
        if steps:
            assert self._layers[1] == self._model_layers, (
                f"replica {self.id} has layers {self._layers[0]} to {self._layers[1]} of "
                f"{self._model_layers}: its prompts get no token here, so write one step"
            )
            first = 1 if residents else 0  # step of a resident's tokens
            if decoding:
                missing = self._ends[0][0] - self._steps_done - first
                if missing < steps:
                    steps = missing
            context, largest = context + residents, largest + first
            context, largest, steps = after_prompts(self._lives, chunks, context, largest, steps)
            if steps:
                self._plan_steps(decoding + len(chunks), context, largest, steps)
                return
        self._first = self._slope = self._steps = 0
        self._due_fixed = due_fixed = self._start_fixed + self._head
        self.due_ns = due_fixed >> FRACTION_BITS

    def _plan_steps(self, decoding: int, context: int, largest: int, steps: int) -> None:
        """Plan decode steps of ``decoding`` requests with total ``context`` within one linear piece.

        The run is due at the end of the first step, if there is one, and these steps.
        """
        pieces, generated = self._pieces(decoding), 0
        if self._largest_context:
            if self._output_token:
                generated = self._generated_cost(context, self.run.chunks if self._head and self.run else ())
            spread = decoding * largest - context
            if spread:
                context += self._rows.shift(decoding, spread)
        limit, intercept, slope = pieces[0]
        if context > limit:
            limit, intercept, slope = later_piece(pieces, self.id, decoding, context)
        if context + (steps - 1) * decoding > limit:
            steps = (limit - context) // decoding + 1
        self._first = first = intercept + slope * context + generated
        self._slope = slope = (slope + self._output_token) * decoding
        self._steps = steps
        cost = self._head + steps * first + slope * (steps * (steps - 1) >> 1)
        self._due_fixed = due_fixed = self._start_fixed + cost
        self.due_ns = due_fixed >> FRACTION_BITS

    def _first_step(self, run: Run, finished: list[int]) -> None:
        """End the step with chunks: resident requests got a token, or had to wait."""
        residents = self._decoding
        end_fixed = self._start_fixed + self._head
        if residents and run.decode:
            if self._delayed_groups:
                self._delayed.end(end_fixed)
            else:
                self._gaps(self._head, 0, 1, residents)
            self._steps_done += 1
            self._context += residents
        layers = self._layers if run.layers is None else run.layers
        if layers[1] == self._model_layers:  # only the last layer gives tokens
            lives = self._lives
            for request, start, tokens in run.chunks:
                life = lives[request]
                if start + tokens == life.request.prompt_tokens + life.generated:
                    self._sample(life, end_fixed, finished, run.hand_over)
        if not run.decode and (residents or not run.hand_over):
            self._delayed.residents_skipped(
                self._start_fixed, end_fixed, residents, self._decoding - residents
            )
