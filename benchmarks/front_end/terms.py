"""What is measured, a repeat at a time: loads whose CPU time is counted, and moments of single requests."""

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from benchmarks.front_end.client import CHAT, COMPLETIONS, Answer, Prompt, Request, Streams, answers
from benchmarks.front_end.server import Measured

# prompt tokens, output tokens, requests, at a time
LOADS: Final = (
    *((100, 1, 200, 8), (1_000, 1, 60, 8), (4_000, 1, 24, 8)),
    *((100, 64, 48, 16), (100, 128, 64, 64), (100, 128, 3, 1), (100, 64, 128, 128)),
)
KINDS: Final = ("token ids", "natural text", "random text", "chat, natural text")
LENGTHS: Final = ((100, 80), (1_000, 24), (4_000, 8), (8_000, 4))  # prompt tokens, requests
BURSTS: Final = (1, 8, 32, 64)
RUNNING: Final = (1, 16, 64, 128)
HOLD: Final = 16_000  # prompt tokens of a request whose step outlasts a burst's way in
_numbers = itertools.count()


def name() -> str:
    """Of a request, once."""
    return f"front{next(_numbers)}x"


class Prompts:
    """Draws prompts of each kind."""

    def __init__(self, measured: Measured, seed: int) -> None:
        self.measured = measured
        self._random = random.Random(seed)
        pages = sorted(Path(__file__).parents[2].glob("docs/**/*.md"))
        text = "\n".join(path.read_text(encoding="utf-8") for path in pages)
        self._natural = self.measured.server.tokens(text[:600_000])

    def draw(self, kind: str, tokens: int) -> Prompt:
        """A prompt; of text, one that was decoded from so many tokens."""
        ids = [self._random.choice(self.measured.tokens) for _ in range(tokens)]
        if "natural" in kind:
            start = self._random.randrange(len(self._natural) - tokens)
            ids = self._natural[start : start + tokens]
        return ids if kind == "token ids" else self.measured.server.text(ids)

    def request(self, kind: str, tokens: int, output_tokens: int) -> Request:
        """Ready to be sent."""
        path = CHAT if kind.startswith("chat") else COMPLETIONS
        return self.measured.server.request(name(), self.draw(kind, tokens), output_tokens, path)


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of the API server's process, and of its event loop, for a load; ``chunks`` came back."""

    prompt_tokens: int
    requests: int
    output_tokens: int
    steps: int
    chunks: int
    cpu_s: float
    loop_s: float


def cost(measured: Measured, requests: Sequence[Request], at_a_time: int, lengths: tuple[int, int]) -> Cost:
    """Send them, so many at a time, and count; lengths: tokens of each prompt and output."""
    steps, cpu_s, loop_s = measured.server.steps(), measured.cpu_s(), measured.loop_s()
    ended = answers(measured.server, requests, at_a_time)
    cpu_s, loop_s = measured.cpu_s() - cpu_s, measured.loop_s() - loop_s
    return Cost(
        prompt_tokens=len(requests) * lengths[0],
        requests=len(requests),
        output_tokens=len(requests) * lengths[1],
        steps=measured.server.steps() - steps,
        chunks=sum(one.chunks for one in ended),
        cpu_s=cpu_s,
        loop_s=loop_s,
    )


def loads(measured: Measured, prompts: Prompts) -> list[Cost]:
    """Of token ids: different lengths, and numbers at a time."""
    return [
        cost(
            measured,
            [prompts.request("token ids", prompt, output) for _ in range(count)],
            at_a_time,
            (prompt, output),
        )
        for prompt, output, count, at_a_time in LOADS
    ]


def fitted(costs: Sequence[Cost], which: str = "cpu_s") -> Mapping[str, float]:
    """Seconds per request, prompt token, engine step and output token: least squares of relative errors."""
    rows = np.array([(one.requests, one.prompt_tokens, one.steps, one.output_tokens) for one in costs], float)
    seconds = np.array([getattr(one, which) for one in costs])
    found, *_ = np.linalg.lstsq(rows / seconds[:, None], np.ones(len(seconds)), rcond=None)
    off = np.abs(rows @ found / seconds - 1)
    return {
        **dict(zip(("request_s", "prompt_token_s", "step_s", "token_s"), map(float, found), strict=True)),
        "worst_off": float(off.max()),
    }


def by_kind(measured: Measured, prompts: Prompts, kind: str) -> Mapping[int, Cost]:
    """Prompt tokens -> what requests of one output token cost, four at a time."""
    return {
        tokens: cost(measured, [prompts.request(kind, tokens, 1) for _ in range(count)], 4, (tokens, 1))
        for tokens, count in LENGTHS
    }


def prompt_terms(points: Mapping[int, Cost]) -> Mapping[str, float]:
    """Seconds of a request of 100 tokens, and per prompt token in the event loop and beside it."""
    loop = {at: one.loop_s / one.requests for at, one in points.items()}
    beside = {at: (one.cpu_s - one.loop_s) / one.requests for at, one in points.items()}
    shortest = points[min(points)]
    return {
        "request_s": shortest.cpu_s / shortest.requests,
        "loop_s": line(loop)[1],
        "beside_s": line(beside)[1],
    }


def line(points: Mapping[int, float]) -> tuple[float, float]:
    """Value at 0 and slope: least squares of relative errors."""
    x, y = np.array(list(points)), np.array(list(points.values()))
    rows = np.stack([np.ones(len(x)), x], axis=1) / y[:, None]
    (start, slope), *_ = np.linalg.lstsq(rows, np.ones(len(y)), rcond=None)
    return float(start), float(slope)


def ways(measured: Measured, ended: Sequence[Answer]) -> Mapping[str, list[float]]:
    """Seconds of each part of the ways in and out, a value per request."""
    moments = measured.moments()
    found: dict[str, list[float]] = {part: [] for part in PARTS}
    for one in ended:
        at = {**moments[one.name], "client sent": one.sent_s, "client has": one.first_s}
        for part, (start, end) in PARTS.items():
            found[part].append(at[end] - at[start])
    return found


PARTS: Final[Mapping[str, tuple[str, str]]] = {
    "way in": ("client sent", "engine"),
    "way in: HTTP, validation, tokenising": ("client sent", "called"),
    "way in: to ZMQ": ("called", "sent"),
    "way in: to the engine core": ("sent", "engine"),
    "engine": ("engine", "emitted"),
    "way out": ("emitted", "client has"),
    "way out: to the event loop, processed": ("emitted", "received"),
    "way out: to the client": ("received", "client has"),
}


def alone(
    measured: Measured,
    requests: Sequence[Request],
    pause: random.Random,
    running: int = 0,
    connect: bool = False,
) -> Mapping[str, float]:
    """Medians of one request after another, between pauses, while others decode."""
    streams, ended = Streams(measured.server), list[Answer]()
    others = [Prompts(measured, running).request("token ids", 100, 12_000) for _ in range(running)]
    try:
        for one in others:
            streams.start(one)
        streams.wait_s(3.0 if running else 0.0)
        for request in requests:
            answer = streams.start(request, connect)
            while not answer.end_s:
                streams.wait(1.0)
            ended.append(answer)
            streams.wait_s(pause.uniform(0.03, 0.08))
    finally:
        streams.close()
    return {part: median(values) for part, values in ways(measured, ended).items()}


def burst(measured: Measured, prompts: Prompts, kind: str, size: int) -> Mapping[str, float]:
    """Seconds from the first request's sending until the engine core has the first, the middle, the last.

    The engine is busy meanwhile with a long prompt, so no outputs take the API server's time.
    """
    streams, held = Streams(measured.server), prompts.request("token ids", HOLD, 1)
    requests, ended = [prompts.request(kind, 100, 1) for _ in range(size)], list[Answer]()
    streams.connect(size + 1)
    try:
        streams.start(held)
        streams.wait_s(0.15)
        sent = [streams.start(one) for one in requests]
        while streams.running:
            ended += streams.wait()
    finally:
        streams.close()
    moments = measured.moments()
    came = sorted(moments[one.name]["engine"] for one in sent)
    start_s = sent[0].sent_s
    return {
        "sent": sent[-1].sent_s - start_s,
        "first": came[0] - start_s,
        "middle": came[size // 2] - start_s,
        "last": came[-1] - start_s,
        "held": float(moments[held.name]["emitted"] > came[-1]),
    }
