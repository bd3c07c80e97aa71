"""Measures a Send of KV between two workers that both compute: a fixed latency, and a rate."""

import time
from collections.abc import Sequence
from typing import Any, Final

from realexec.calibration.grid import CalibrationPlan
from realexec.calibration.links import wait_for
from realexec.calibration.quiet import Spread, spread_of
from realexec.driver.processes import WorkerPool
from realexec.wire.messages import Fetch, Fetched, Forget, Hold, Locate, Located, RunSteps, StepsDone
from serving.vocabulary.errors import UserError

SOURCE, TARGET = 0, 1
SENDS_EACH: Final = 4  # sends of each size in every repeat
# Request ids: the one that keeps a worker computing, and the first of those whose KV is sent.
_FILLER: Final = 0
_FIRST: Final = 1
_FILLER_PROMPT, _FILLER_TOKENS = 16, 200


class KvSends:
    """Sends as in a run: the source reports where KV lies, the target reads it, and both run their steps."""

    def __init__(self, pool: WorkerPool, plan: CalibrationPlan, vocabulary: int, timeout_s: float) -> None:
        self._pool, self._plan, self._timeout_s = pool, plan, timeout_s
        self._vocabulary = vocabulary
        self._number = 0
        self._resting = False
        self._tokens = {_FIRST + place: plan.contexts[-1] for place in range(plan.sequences[0])}
        self._tokens[_FIRST + len(self._tokens)] = plan.contexts[0]

    def measured(self) -> dict[str, Any]:
        """Measure sends of a short request, and of as many long ones as decode together. Raises UserError."""
        *long, short = self._tokens
        for request, tokens in self._tokens.items():
            self._computed(request, tokens)
        for worker in (SOURCE, TARGET):
            self._compute_on(worker)
        self._took((short,))
        rows = [(self._took((short,)), self._took(long)) for _ in range(SENDS_EACH * self._plan.repeats)]
        self._come_to_rest()
        return told_of([small for small, _ in rows], [large for _, large in rows])

    def _prompt(self, tokens: int) -> tuple[int, ...]:
        return tuple([7 * place % self._vocabulary for place in range(tokens)])

    def _computed(self, request: int, tokens: int) -> None:
        """Compute a request's KV at the source, without adding the request to a batch."""
        tell, most = self._pool.workers[SOURCE].send, self._plan.batch_tokens
        tell(Hold(request, self._prompt(tokens), (), 2))
        for start in range(0, tokens, most):
            chunk = request, start, min(most, tokens - start)
            tell(RunSteps(0, (chunk,), False, 1, False, hand_over=True))
            wait_for(self._pool, StepsDone, self._timeout_s)

    def _compute_on(self, worker: int) -> None:
        """Make a worker compute one prompt and its tokens. Called again when they are complete."""
        tell = self._pool.workers[worker].send
        tell(Hold(_FILLER, self._prompt(_FILLER_PROMPT), (), _FILLER_TOKENS))
        tell(RunSteps(0, ((_FILLER, 0, _FILLER_PROMPT),), True, _FILLER_TOKENS, False))

    def _wait_for(self, kind: type) -> Any:
        """Return the next message of this kind; workers that finish get new work meanwhile."""
        while True:
            worker, message = wait_for(self._pool, (kind, StepsDone), self._timeout_s)
            if isinstance(message, StepsDone) and not message.running and not self._resting:
                self._compute_on(worker)
            if isinstance(message, kind):
                return message

    def _took(self, requests: Sequence[int]) -> tuple[int, float]:
        """Send the KV of these requests and return (bytes, seconds)."""
        source, target = self._pool.workers[SOURCE].send, self._pool.workers[TARGET].send
        self._number += 1
        began_s = time.monotonic()
        for request in requests:
            target(Hold(request, self._prompt(self._tokens[request]), (), 2))
        source(Locate(self._number, "kv", tuple(requests), None, ()))
        places = self._wait_for(Located).places
        target(Fetch(self._number, "kv", SOURCE, places))
        fetched: Fetched = self._wait_for(Fetched)
        took_s = time.monotonic() - began_s
        for request in requests:
            target(Forget(request))
        if fetched.cause:
            raise UserError(f"KV could not be sent between two workers ({fetched.cause}): correct the cause")
        return fetched.moved_bytes, took_s

    def _come_to_rest(self) -> None:
        """Wait until both workers have finished computing; make the source forget what was sent."""
        self._resting = True
        for request in self._tokens:
            self._pool.workers[SOURCE].send(Forget(request))
        ended = set[int]()
        while len(ended) < 2:
            worker, done = wait_for(self._pool, StepsDone, self._timeout_s)
            if not done.running:
                ended.add(worker)


def told_of(small: Sequence[tuple[int, float]], large: Sequence[tuple[int, float]]) -> dict[str, Any]:
    """Return the line through the medians of both sizes: ``latency_us`` + bytes / ``bytes_per_s``."""
    few, many = _row(small), _row(large)
    bytes_apart, us_apart = many["bytes"] - few["bytes"], many["median_us"] - few["median_us"]
    per_us = bytes_apart / max(us_apart, 1e-3)
    latency_us = max(few["median_us"] - few["bytes"] / per_us, 0.0)
    return {"latency_us": latency_us, "bytes_per_s": per_us * 1e6, "sends": [few, many]}


def _row(sends: Sequence[tuple[int, float]]) -> dict[str, float]:
    spread: Spread = spread_of([took_s * 1e6 for _, took_s in sends])
    return {"bytes": sends[0][0], **spread.as_dict("us")}
