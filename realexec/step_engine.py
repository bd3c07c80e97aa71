"""What one worker holds and does in one step: sequences, their KV, chunks and decoding."""

from collections.abc import Sequence
from dataclasses import dataclass

from realexec.kv import RequestKV
from realexec.model_runner import DecodeRow, ModelRunner
from serving.vocabulary.actions import Chunk


@dataclass(slots=True)
class HeldRequest:
    """A request on this worker. ``computed`` positions have KV; it decodes once it has sampled a token."""

    tokens: list[int]
    last_tokens: int
    kv: RequestKV | None = None
    computed: int = 0
    decoding: bool = False

    @property
    def finished(self) -> bool:
        """Whether it has all its tokens."""
        return len(self.tokens) >= self.last_tokens


class StepEngine:
    """Executes steps over the requests assigned to one worker."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self._held: dict[int, HeldRequest] = {}

    def assign(self, request: int, prompt: Sequence[int], generated: Sequence[int], missing: int) -> None:
        """Hold a request that is to generate ``missing`` more tokens after ``prompt`` and ``generated``."""
        tokens = [*prompt, *generated]
        self._held[request] = HeldRequest(tokens, len(tokens) + missing)

    def drop_kv(self, request: int) -> None:
        """Preemption: the tokens stay, the KV must be computed again by chunks."""
        held = self._held[request]
        held.kv, held.computed, held.decoding = None, 0, False

    def forget(self, request: int) -> None:
        """The request is none of this worker's business any more; unknown ids are ignored."""
        self._held.pop(request, None)

    def step(self, chunks: Sequence[Chunk], decode: bool) -> tuple[dict[int, int], tuple[int, ...]]:
        """One step; returns the token of every request that got one, and the ids that finished, ascending.

        Requests that sample from a chunk of this step decode from the next step on.
        """
        residents = self._residents() if decode else []
        sampled: dict[int, int] = {}
        for request, start, tokens in chunks:
            self._prefill(request, start, tokens, sampled)
        if residents:
            rows = [self._row(request) for request in residents]
            sampled.update(zip(residents, self._runner.decode(rows)))
            for request in residents:
                self._held[request].computed += 1
        return sampled, self._finish(sampled)

    def has_residents(self) -> bool:
        """Whether a step without chunks would decode anything."""
        return any(held.decoding for held in self._held.values())

    def _residents(self) -> list[int]:
        return sorted(request for request, held in self._held.items() if held.decoding)

    def _prefill(self, request: int, start: int, tokens: int, sampled: dict[int, int]) -> None:
        held = self._held[request]
        known = len(held.tokens)
        end = start + tokens
        if start != held.computed or not start < end <= known or held.decoding:
            raise ValueError(
                f"chunk [{start}, {end}) of request {request} does not continue its {held.computed} computed "
                f"of {known} known tokens"
            )
        if held.kv is None:
            held.kv = self._runner.new_kv(held.last_tokens)
        hidden = self._runner.prefill(held.tokens[start:end], start, known, held.kv)
        held.computed = end
        if end == known:
            sampled[request] = self._runner.sample(hidden)

    def _row(self, request: int) -> DecodeRow:
        held = self._held[request]
        assert held.kv is not None
        return DecodeRow(held.tokens[-1], held.computed, held.kv)

    def _finish(self, sampled: dict[int, int]) -> tuple[int, ...]:
        for request, token in sampled.items():
            held = self._held[request]
            held.tokens.append(token)
            held.decoding = True
        finished = tuple(sorted(request for request in sampled if self._held[request].finished))
        for request in finished:
            del self._held[request]
        return finished
