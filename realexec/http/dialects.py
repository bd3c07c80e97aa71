"""The protocol of each kind of server: token streams, aborts and metrics.

``vllm`` and ``openai`` use /v1/completions; ``vllm`` also returns token ids. ``sglang`` has its own route for
token ids, /generate. Its routes are as documented (SGLang 0.5), and were not run against an SGLang server.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from realexec.http.metrics_text import Sample, values
from serving.record.json_text import json_data

DONE: Final = b"[DONE]"
# Raised by fields of another type than the protocol's: null, a list, a number too large.
MISFIT: Final = (ArithmeticError, AttributeError, LookupError, TypeError)
UNKNOWN_TOKEN: Final = -1  # a token of which only the text is known
_ENDED: Final = frozenset(("length", "stop"))
MOST_TOKENS: Final = 1 << 24  # of one answer: more than any context
_MOST_ID: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Wish:
    """A generation request. ``model``: the server's name for it; ``label``: the request's name there."""

    model: str
    prompt: tuple[int, ...]
    max_tokens: int
    label: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """``tokens`` that arrived together; ``ended``: these are the last; ``fault``: why no more will come."""

    tokens: tuple[int, ...] = ()
    ended: bool = False
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLoad:
    """The load a server reports; None: not reported. ``received``: tokens whose KV other servers sent.

    ``queried``, ``found``: tokens looked up in its prefix cache, and found there.
    """

    running: int
    waiting: int
    used_share: float | None
    total_blocks: int | None
    block_tokens: int | None
    preemptions: int = 0
    received: int | None = None
    queried: int = 0
    found: int = 0


class Reader(Protocol):
    """Decodes one stream."""

    def read(self, data: bytes) -> Chunk:
        """Decode the data of one ``data:`` line. Raises ValueError or one of ``MISFIT`` for others."""


class Dialect(Protocol):
    """One kind of server. ``health``: 200 while it serves; ``abort``: route, used as the stream is closed."""

    name: str
    path: str
    health: str
    abort: str | None

    def body(self, wish: Wish) -> dict[str, Any]:
        """Return the body of the request."""

    def reader(self) -> Reader:
        """Return a reader for one stream."""

    def load(self, samples: Sequence[Sample]) -> ServerLoad | None:
        """Return the server's load from its metrics."""


def _parsed(data: bytes, of: str) -> dict[str, Any]:
    """Parse a chunk of a stream, a JSON object. Raises ValueError if it is not one."""
    parsed = json_data(data)
    if not isinstance(parsed, dict):
        raise ValueError(f"{data[:60]!r} is no chunk of {of}")
    return parsed


class _CompletionReader:
    """Reads token ids of vLLM, else those in its log probabilities, else pieces of text."""

    def __init__(self) -> None:
        self._seen = 0

    def read(self, data: bytes) -> Chunk:
        if data == DONE:
            return Chunk(ended=True)
        answer = _parsed(data, "a completion")
        if answer.get("error") is not None:
            return Chunk(fault=_message(answer["error"]))
        tokens: tuple[int, ...] = ()
        choices = answer.get("choices") or []
        if choices:
            tokens = _tokens(choices[0])
        self._seen += len(tokens)
        usage = answer.get("usage") or {}
        if not choices and tokens == () and usage.get("completion_tokens", 0) > self._seen:
            tokens = _unknown(usage["completion_tokens"] - self._seen)
            self._seen += len(tokens)
        reason = choices[0].get("finish_reason") if choices else None
        if reason is not None and reason not in _ENDED:
            return Chunk(tokens, fault=f"the server ended it: {reason}")
        return Chunk(tokens)


def _tokens(choice: Mapping[str, Any]) -> tuple[int, ...]:
    ids = choice.get("token_ids")
    if ids is not None:
        return token_ids(ids)
    words = (choice.get("logprobs") or {}).get("tokens") or []
    if words and all(str(word).startswith("token_id:") for word in words):
        return token_ids([word.partition(":")[2] for word in words])
    return (UNKNOWN_TOKEN,) if choice.get("text") else ()


def token_ids(ids: Iterable[Any]) -> tuple[int, ...]:
    """Return a server's token ids. Raises ValueError, TypeError or OverflowError if they are none."""
    tokens = tuple(map(int, ids))
    if tokens and not 0 <= min(tokens) <= max(tokens) < _MOST_ID:
        raise ValueError("a token id is out of range")
    return tokens


def _unknown(count: int) -> tuple[int, ...]:
    """Return so many tokens of which only the number is known."""
    if count > MOST_TOKENS:
        raise ValueError(f"it counts {count} tokens")
    return (UNKNOWN_TOKEN,) * count


def _message(error: Any) -> str:
    return str(error.get("message", error) if isinstance(error, dict) else error)[:200]


class OpenAI:
    """Any server with /v1/completions. Only the text of its stream can be relied on."""

    name = "openai"
    path = "/v1/completions"
    health = "/v1/models"
    abort: str | None = None

    def body(self, wish: Wish) -> dict[str, Any]:
        """Ask for greedy decoding, so that an answer can be reproduced."""
        return {
            "model": wish.model,
            "prompt": list(wish.prompt),
            "max_tokens": wish.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def reader(self) -> Reader:
        """Return a reader for one stream."""
        return _CompletionReader()

    def load(self, samples: Sequence[Sample]) -> ServerLoad | None:
        """Return None: no load is reported."""
        return None


class Vllm(OpenAI):
    """vLLM 0.10 and later; run against 0.32."""

    name = "vllm"
    health = "/health"

    def body(self, wish: Wish) -> dict[str, Any]:
        """Ask for exactly ``max_tokens`` tokens, whatever they are, and their ids.

        ``ignore_eos`` is enough for that: ``min_tokens`` would make the server do the same in another way.
        """
        more = {"ignore_eos": True, "return_token_ids": True}
        return super().body(wish) | more

    def load(self, samples: Sequence[Sample]) -> ServerLoad | None:
        """Return the load summed over its engines: data-parallel servers have several."""
        running = values(list(samples), "vllm:num_requests_running")
        waiting = values(list(samples), "vllm:num_requests_waiting")
        if not running or not waiting:
            return None
        used = values(list(samples), "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
        received = values(list(samples), "vllm:external_prefix_cache_hits_total")
        memory = [sample for sample in samples if sample.name == "vllm:cache_config_info"]
        blocks = [
            blocks_here for config in memory if (blocks_here := _whole(config.labels.get("num_gpu_blocks")))
        ]
        sizes = [size for config in memory if (size := _whole(config.labels.get("block_size")))]
        return ServerLoad(
            running=round(sum(running)),
            waiting=round(sum(waiting)),
            used_share=sum(used) / len(used) if used else None,
            total_blocks=sum(blocks) or None,
            block_tokens=min(sizes, default=None),
            preemptions=round(sum(values(list(samples), "vllm:num_preemptions_total"))),
            received=round(sum(received)) if received else None,
            queried=round(sum(values(list(samples), "vllm:prefix_cache_queries_total"))),
            found=round(sum(values(list(samples), "vllm:prefix_cache_hits_total"))),
        )


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) <= 15 else 0


class _GenerateReader:
    """``output_ids``: all tokens so far; with --incremental-streaming-output those since the last chunk."""

    def __init__(self) -> None:
        self._seen = 0

    def read(self, data: bytes) -> Chunk:
        if data == DONE:
            return Chunk(ended=True)
        answer = _parsed(data, "/generate")
        if answer.get("error") is not None:
            return Chunk(fault=_message(answer["error"]))
        meta = answer.get("meta_info") or {}
        ids, total = answer.get("output_ids") or [], int(meta.get("completion_tokens", 0))
        new = max(0, total - self._seen)
        self._seen = max(self._seen, total)
        tokens = token_ids(ids[len(ids) - new :]) if new <= len(ids) else _unknown(new)
        reason = meta.get("finish_reason")
        kind = reason.get("type") if isinstance(reason, dict) else reason
        if kind is not None and kind not in _ENDED:
            return Chunk(tokens, fault=f"the server ended it: {kind}")
        return Chunk(tokens)


class Sglang:
    """SGLang, by its documented routes."""

    name = "sglang"
    path = "/generate"
    health = "/health"
    abort: str | None = "/abort_request"

    def body(self, wish: Wish) -> dict[str, Any]:
        """Return the request; /abort_request identifies it by its ``rid``."""
        sampling = {"max_new_tokens": wish.max_tokens, "ignore_eos": True, "temperature": 0}
        sampling["min_new_tokens"] = wish.max_tokens
        return {
            "rid": wish.label,
            "input_ids": list(wish.prompt),
            "sampling_params": sampling,
            "stream": True,
        }

    def reader(self) -> Reader:
        """Return a reader for one stream."""
        return _GenerateReader()

    def load(self, samples: Sequence[Sample]) -> ServerLoad | None:
        """Return the load. SGLang counts its memory in tokens, so a block is one token."""
        running = values(list(samples), "sglang:num_running_reqs")
        waiting = values(list(samples), "sglang:num_queue_reqs")
        if not running or not waiting:
            return None
        used = values(list(samples), "sglang:token_usage")
        total = values(list(samples), "sglang:max_total_num_tokens")
        share = sum(used) / len(used) if used else None
        blocks = round(sum(total)) or None
        return ServerLoad(
            running=round(sum(running)),
            waiting=round(sum(waiting)),
            used_share=share,
            total_blocks=blocks,
            block_tokens=1 if blocks else None,
        )


DIALECTS: Final[Mapping[str, Dialect]] = {dialect.name: dialect for dialect in (OpenAI(), Vllm(), Sglang())}
