"""Measures the steps of a stock server with designed loads: prompts alone, and so many requests at once.

Steps with prompts are timed by the server's own counters, if it has them, so that the front end is apart.
Steps that decode are timed by the tokens as they arrive, between the second token of the request that began
last and the end of the one that ends first. Steps with both are measured at the requests that decode: by how
much their tokens are late for a prompt that is sent meanwhile, whatever delays them. What lies around the
engine is measured with one request alone, with several that are sent at once, and with one while others
decode. Nothing else may use the server.
"""

import asyncio
import random
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, Final

from realexec.calibration.done_log import DoneLog
from realexec.http.dialects import Wish
from realexec.http.engine_times import EngineTimes, times_of_one
from realexec.http.probe import Server
from realexec.http.stream import Refused, tokens_of
from serving.vocabulary.errors import UserError
from serving.vocabulary.units import NS_PER_S

Progress = Callable[[int, int], None]

_PROMPTS: Final = (16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192)
_CONTEXTS: Final = (16, 128, 512, 1024, 4096)
_LEAST_ID: Final = 10  # the first ids of a vocabulary are often special
_LEAST_STEPS: Final = 4  # of a window that counts
_AHEAD_S: Final = 0.005  # for the prompt before a batch to reach the engine
_LOOKS: Final = 40
_LOOK_S: Final = 0.05
_TOKEN_LOOK_S: Final = 0.002
_SETTLING: Final = 2  # steps after a prompt's last token in which the server still has work with it
_WARM: Final = (16, 64)  # prompts before anything counts
_MIXED: Final = (16, 128, 512)  # tokens of prompts that are sent while others decode
_LONE: Final = 6  # such prompts, one after the other
_BESIDE_STEPS: Final = 4  # times the steps of a decode that is timed: it has to outlast the prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """``prompts``: tokens. ``contexts``: tokens of each request at the start of ``sequences`` at once.

    ``steps``: tokens that each request decodes. ``repeats``: how often everything is measured. ``batch``:
    (tokens, number) of prompts in the largest step, which no single prompt fills; or (0, 0). ``beside``: how
    many decode, at the first context, while prompts of ``mixed`` tokens are sent one after the other.
    """

    prompts: tuple[int, ...]
    batch: tuple[int, int]
    contexts: tuple[int, ...]
    sequences: tuple[int, ...]
    steps: int
    repeats: int
    beside: tuple[int, ...] = ()
    mixed: tuple[int, ...] = ()

    def jobs(self) -> list[str]:
        """Names of all measurements, in the order in which they are made: repeats are far apart in time."""
        one = [f"prompt {tokens}" for tokens in self.prompts]
        one += ["batch {} {}".format(*self.batch)] if self.batch[1] else []
        one += [f"decode {count} {context}" for context in self.contexts for count in self.sequences]
        one += [f"mixed {tokens} {count}" for tokens in self.mixed for count in self.beside]
        return [f"{name} #{repeat}" for repeat in range(self.repeats) for name in one]

    def as_dict(self) -> dict[str, Any]:
        """To compare with the plan of a calibration that was stopped."""
        names = ("prompts", "batch", "contexts", "sequences", "steps", "repeats", "beside", "mixed")
        return {
            name: list(value) if isinstance(value := getattr(self, name), tuple) else value for name in names
        }


def server_plan(
    server: Server, *, max_num_seqs: int, max_num_batched_tokens: int, repeats: int, quick: bool
) -> ServerPlan:
    """Plan what fits the server's context and memory. Raises UserError if it states neither."""
    longest, kv_tokens = server.max_model_len, server.kv_tokens
    if longest is None:
        raise UserError(
            f"the server at {server.address} states no longest context in /v1/models (max_model_len): write "
            "the address of one that does, as vLLM and SGLang do"
        )
    steps = 24 if quick else 32  # on a busy machine requests that are sent at once begin several steps apart
    whole = min(max_num_batched_tokens, longest - 2)
    prompts = [*(tokens for tokens in _PROMPTS if tokens < whole), whole]
    contexts = [tokens for tokens in _CONTEXTS if tokens + steps < longest]
    powers = sorted({1 << at for at in range(max_num_seqs.bit_length())} | {max_num_seqs})
    room = kv_tokens or max_num_seqs * longest
    fits = [tokens for tokens in contexts if max_num_seqs * (tokens + steps) < room]
    if not prompts or not fits:
        raise UserError(
            f"the server at {server.address} has room for {room:,} tokens of KV and contexts of {longest:,}, "
            f"too few for engine.max_num_seqs={max_num_seqs} requests: write the number it was started with"
        )
    beside = _beside(fits[0], steps, longest, max_num_seqs)
    mixed = [tokens for tokens in _MIXED if tokens <= whole]
    if quick:
        beside, mixed = beside[-1:], mixed[:2]
        prompts, fits, powers = (
            prompts[:: -max(1, len(prompts) // 2)][::-1],
            [fits[0], fits[-1]],
            [1, max_num_seqs],
        )
    return ServerPlan(
        prompts=tuple(prompts),
        batch=_batch_of(max_num_batched_tokens, whole, max_num_seqs),
        contexts=tuple(dict.fromkeys(fits)),
        sequences=tuple(dict.fromkeys(powers)),
        steps=steps,
        repeats=repeats,
        beside=beside,
        mixed=tuple(mixed),
    )


def _beside(context: int, steps: int, longest: int, max_num_seqs: int) -> tuple[int, ...]:
    """One, half and all but one of the requests that the server decodes, if they may decode long enough."""
    if context + _BESIDE_STEPS * steps >= longest:
        return ()
    return tuple(sorted({count for count in (1, max_num_seqs // 2, max_num_seqs - 1) if count > 0}))


def _batch_of(most_tokens: int, longest: int, max_num_seqs: int) -> tuple[int, int]:
    """Equal prompts that fill a step together, one of them not; (0, 0) if one does, or they are too many."""
    if most_tokens <= longest:
        return 0, 0
    for count in range(-(-most_tokens // longest), max_num_seqs):
        if most_tokens % count == 0:
            return most_tokens // count, count
    return 0, 0


def measure(
    server: Server,
    plan: ServerPlan,
    log: DoneLog,
    *,
    vocabulary: int,
    seed: int,
    timeout_s: float,
    on_progress: Progress | None = None,
) -> None:
    """Measure what is missing in ``log``. Raises UserError if the server refuses or breaks a request."""
    bench = _Bench(server, plan, vocabulary, seed, timeout_s)
    missing = [name for name in plan.jobs() if name not in log.entries]
    try:
        asyncio.run(_all(bench, missing, log, on_progress))
    except Refused as error:
        raise UserError(f"the server at {server.address} refused a request: {error}") from None
    except (OSError, TimeoutError) as error:
        words = str(error) or type(error).__name__
        raise UserError(f"the server at {server.address} broke off a request: {words}") from None


async def _all(bench: "_Bench", names: Sequence[str], log: DoneLog, on_progress: Progress | None) -> None:
    for tokens in _WARM if names else ():
        await bench.prompt(tokens)
    for place, name in enumerate(names, 1):
        kind, *numbers = name.partition(" #")[0].split()
        log.add(name, await bench.made(kind, *map(int, numbers)))
        if on_progress is not None:
            on_progress(place, len(names))


@dataclass(slots=True)
class _Stream:
    """When a request was sent and its tokens arrived, in ns. ``begun``: the first came, or it ended."""

    sent_ns: int
    tokens_ns: list[int] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False


def _mixed_entry(others: Sequence[_Stream], lone: Sequence[_Stream], context: int) -> dict[str, Any]:
    """What ``_Bench.mixed`` measured, from when all tokens arrived.

    Steps of the others that decode only are those before the prompts and after them: the machine may become
    faster or slower meanwhile.
    """
    begin_ns, end_ns = lone[0].sent_ns, lone[-1].tokens_ns[-1]
    steps_s, delays_s, tokens = [], [], 0
    for other in others:
        at_ns = other.tokens_ns
        first = bisect_right(at_ns, begin_ns) - 1
        last = bisect_right(at_ns, end_ns) + _SETTLING
        ends = len(at_ns) - 1
        if first < _LEAST_STEPS or ends - last < _LEAST_STEPS:
            return {}
        only_s = [(at_ns[first] - at_ns[1]) / (first - 1), (at_ns[ends] - at_ns[last]) / (ends - last)]
        steps_s.append(fmean(only_s) / NS_PER_S)
        spent_s = (at_ns[last] - at_ns[first]) / NS_PER_S
        delays_s.append((spent_s - (last - first) * steps_s[-1]) / len(lone))
        tokens += context + (first + last) // 2
    step_s = fmean(steps_s)
    return {
        "client_s": fmean((stream.tokens_ns[0] - stream.sent_ns) / NS_PER_S for stream in lone),
        "step_s": step_s,
        "mixed_s": step_s + max(0.0, fmean(delays_s)),
        "context_tokens": tokens,
    }


class _Bench:
    """Sends the loads. Every prompt is drawn anew, so that no prefix cache answers for it."""

    def __init__(
        self, server: Server, plan: ServerPlan, vocabulary: int, seed: int, timeout_s: float
    ) -> None:
        self._server, self._plan, self._vocabulary, self._timeout_s = server, plan, vocabulary, timeout_s
        self._random, self._sent = random.Random(seed), 0

    async def made(self, kind: str, first: int, second: int = 1) -> dict[str, Any]:
        """The measurement of this kind. Numbers as in ``ServerPlan.jobs``."""
        if kind == "prompt":
            return await self.prompt(first)
        kinds = {"batch": self.batch, "decode": self.decode, "mixed": self.mixed}
        return await kinds[kind](first, second)

    async def prompt(self, tokens: int) -> dict[str, Any]:
        """One prompt alone, with one token of output; seconds at the client and in the engine."""
        before = await times_of_one(self._server, self._timeout_s)
        stream = await self._stream(tokens, 1)
        client_s = (stream.tokens_ns[0] - stream.sent_ns) / 1e9
        return {"client_s": client_s, "engine_s": await self._in_engine_s(before, 1)}

    async def batch(self, tokens: int, count: int) -> dict[str, Any]:
        """So many prompts that wait for one before them, so that they run in one step; its seconds.

        None if the server does not count them, or if the one before was done too soon.
        """
        longest = self._plan.prompts[-1]
        alone = (await self.prompt(longest))["engine_s"]
        counted = await times_of_one(self._server, self._timeout_s)
        first = asyncio.create_task(self._stream(longest, 1))
        await asyncio.sleep(_AHEAD_S)
        streams = await asyncio.gather(*(self._stream(tokens, 1) for _ in range(count)))
        waited = (await first).tokens_ns[0] > max(stream.sent_ns for stream in streams)
        run = await self._run_since(counted, count + 1)
        if not waited or run is None or alone is None:
            return {"engine_s": None}
        return {"engine_s": max(0.0, run.prefilled_s - alone) / count}

    async def decode(self, count: int, context: int) -> dict[str, Any]:
        """``count`` requests at once; seconds of a step while all of them decode, and their contexts then."""
        before = await times_of_one(self._server, self._timeout_s)
        wanted = self._plan.steps
        streams = await asyncio.gather(*(self._stream(context, wanted) for _ in range(count)))
        begin_ns = max(stream.tokens_ns[min(1, len(stream.tokens_ns) - 1)] for stream in streams)
        end_ns = min(stream.tokens_ns[-1] for stream in streams)
        inside = [[at for at in stream.tokens_ns if begin_ns <= at <= end_ns] for stream in streams]
        steps = min(len(one) for one in inside) - 1
        client_s = fmean((stream.tokens_ns[0] - stream.sent_ns) / 1e9 for stream in streams)
        entry = {
            "client_s": client_s,
            "engine_s": await self._in_engine_s(before, count),
            "steps": max(0, steps),
        }
        if steps < _LEAST_STEPS:
            return entry
        spans_s = [(one[-1] - one[0]) / 1e9 / (len(one) - 1) for one in inside]
        first = [sum(at < begin_ns for at in stream.tokens_ns) for stream in streams]
        tokens = sum(context + before_it + len(one) / 2 for before_it, one in zip(first, inside, strict=True))
        return entry | {"step_s": median(spans_s), "context_tokens": round(tokens)}

    async def mixed(self, tokens: int, count: int) -> dict[str, Any]:
        """Prompts one after the other while ``count`` requests decode, and by how much they delay these.

        ``client_s``: of such a prompt. ``step_s``: of a step that decodes only; ``mixed_s``: of one that a
        prompt shares, with all that it delays before and after. Empty if the others were done too soon.
        """
        wanted, context = _BESIDE_STEPS * self._plan.steps, self._plan.contexts[0]
        others = [_Stream(0, begun=asyncio.Event()) for _ in range(count)]
        tasks = [asyncio.create_task(self._read(other, context, wanted)) for other in others]
        try:
            async with asyncio.timeout(self._timeout_s):
                for other in others:
                    await other.begun.wait()
                await self._until(others, self._plan.steps // 2)
                lone = [await self._stream(tokens, 1) for _ in range(_LONE)]
                await self._until(others, self._plan.steps // 2 + _SETTLING)
        finally:
            await asyncio.gather(*tasks)
        return _mixed_entry(others, lone, context)

    async def _until(self, streams: Sequence["_Stream"], more: int) -> None:
        """Wait until each of the streams has so many more tokens, or has ended."""
        goals = [len(stream.tokens_ns) + more for stream in streams]
        while any(
            len(stream.tokens_ns) < goal and not stream.ended
            for stream, goal in zip(streams, goals, strict=True)
        ):
            await asyncio.sleep(_TOKEN_LOOK_S)

    async def _stream(self, tokens: int, wanted: int) -> _Stream:
        """Send a prompt and read its tokens."""
        return await self._read(_Stream(0), tokens, wanted)

    async def _read(self, stream: _Stream, tokens: int, wanted: int) -> _Stream:
        prompt = tuple(self._random.randrange(_LEAST_ID, self._vocabulary) for _ in range(tokens))
        self._sent += 1
        server = self._server
        wish = Wish(server.model, prompt, wanted, f"servetwin-calibrate-{self._sent}")
        stream.sent_ns = time.monotonic_ns()
        try:
            async with asyncio.timeout(self._timeout_s * max(1, wanted)):
                async for chunk in tokens_of(server.address, server.dialect, wish, server.key):
                    stream.tokens_ns += [time.monotonic_ns()] * len(chunk.tokens)
                    stream.begun.set()
        finally:  # else whoever waits for a stream that fails waits until its time is up
            stream.ended = True
            stream.begun.set()
        if not stream.tokens_ns:
            raise Refused("it answered without a token")
        return stream

    async def _in_engine_s(self, before: EngineTimes | None, requests: int) -> float | None:
        """Mean seconds from the engine's queue to the first token; None if the server does not count it."""
        run = await self._run_since(before, requests)
        return None if run is None else run.first_token_s / run.requests

    async def _run_since(self, before: EngineTimes | None, requests: int) -> EngineTimes | None:
        """What the server has counted since then, once it has counted so many requests and no other."""
        for _ in range(_LOOKS if before is not None else 0):
            now = await times_of_one(self._server, self._timeout_s)
            if now is None:
                return None
            assert before is not None
            if now.requests >= before.requests + requests:
                return now - before if now.requests == before.requests + requests else None
            await asyncio.sleep(_LOOK_S)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEndFit:
    """``way_in_s`` of a request without tokens, ``prompt_token_s`` for each token; ``request_s``: that a
    process is busy with each request while others wait; ``running_s`` for each other request that decodes.

    ``error_s``: mean distance from what was measured with one request alone.
    """

    way_in_s: float
    request_s: float
    prompt_token_s: float
    running_s: float
    error_s: float


def front_end_fit(
    entries: Mapping[str, Mapping[str, Any]], asynchronous: bool | None = None
) -> FrontEndFit | None:
    """Fit the client's times less the engine's; None if the server does not count its engine's times.

    Of requests that are sent at once each waits for those before it: on average half of the others. A request
    that is sent while others decode waits for the end of a step, on average half of one, and for the step
    that computes it; ``asynchronous``: for one more, which is scheduled already. What is left of its time is
    ``running_s`` of each that decodes.
    """
    prompts, at_once = _around_s(entries, "prompt"), _around_s(entries, "decode")
    if len(prompts) < 2:
        return None
    points = sorted(prompts.items())
    alone_s, prompt_token_s = _line(points)
    left = dict[int, list[float]]()
    for tokens, count, entry in _mixed(entries):
        waited_s = entry["step_s"] * (1.5 if asynchronous else 0.5) + entry["mixed_s"]
        left_s = entry["client_s"] - waited_s - alone_s - prompt_token_s * tokens
        left.setdefault(count, []).append(left_s)
    running_s = _slope([(count, median(times)) for count, times in left.items()])
    before_s = _slope([(count - 1, around_s - alone_s) for count, around_s in at_once.items() if count > 1])
    request_s = min(alone_s, max(0.0, 2 * before_s - running_s))
    errors = [abs(alone_s + prompt_token_s * x - y) for x, y in points]
    return FrontEndFit(
        way_in_s=alone_s - request_s, request_s=request_s, prompt_token_s=prompt_token_s,
        running_s=running_s, error_s=fmean(errors),
    )  # fmt: skip


def _around_s(entries: Mapping[str, Mapping[str, Any]], wanted: str) -> dict[int, float]:
    """Median seconds around the engine by the first number of each measurement of this kind."""
    found = dict[int, list[float]]()
    for name, entry in entries.items():
        kind, *numbers = name.partition(" #")[0].split()
        if kind == wanted and entry.get("engine_s") is not None:
            found.setdefault(int(numbers[0]), []).append(max(0.0, entry["client_s"] - entry["engine_s"]))
    return {number: median(times) for number, times in found.items()}


def _mixed(entries: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """Tokens of the prompts, how many decoded, and what was measured, unless they were done too soon."""
    for name, entry in entries.items():
        kind, *numbers = name.partition(" #")[0].split()
        if kind == "mixed" and entry:
            yield int(numbers[0]), int(numbers[1]), entry


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Least squares through 0, not below 0; 0 without points."""
    squares = sum(x * x for x, _ in points)
    return max(0.0, sum(x * y for x, y in points) / squares) if squares else 0.0


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Least squares with neither number below 0."""
    mean_x, mean_y = fmean(x for x, _ in points), fmean(y for _, y in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    slope = max(0.0, slope)
    level = mean_y - slope * mean_x
    if level >= 0:
        return level, slope
    return 0.0, sum(x * y for x, y in points) / sum(x * x for x, _ in points)
