"""What one worker holds and computes in one step: sequences, KV, chunks, decoding, passes over layers."""

from collections.abc import Collection, Mapping, Sequence

import torch

from realexec.model.held_request import HeldRequest
from realexec.model.kv import RequestKV
from realexec.model.layer_pass import pass_over
from realexec.model.model_runner import DecodeRow, ModelRunner
from serving.vocabulary.actions import Chunk, Span
from serving.vocabulary.layers import LayerRange

# The token of every request that got one, and the requests that have just got their last token, ascending.
StepResult = tuple[dict[int, int], tuple[int, ...]]


class StepEngine:
    """Executes steps over the requests assigned to one worker."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self._held: dict[int, HeldRequest] = {}

    def use(self, runner: ModelRunner) -> None:
        """Switch to another part of a model; no request may have KV of the old one."""
        self._runner = runner

    # Which requests are here.

    def assign(self, request: int, prompt: Sequence[int], generated: Sequence[int], missing: int) -> None:
        """Hold a request that is to generate ``missing`` more tokens after ``prompt`` and ``generated``."""
        self.forget(request)
        tokens = [*prompt, *generated]
        self._held[request] = HeldRequest(
            tokens=tokens, prompt_tokens=len(prompt), last_tokens=len(tokens) + missing
        )

    def holds(self, request: int) -> bool:
        """Whether this worker holds the request."""
        return request in self._held

    def held(self, request: int) -> HeldRequest:
        """Return the state of a request that this worker holds."""
        return self._held[request]

    def room(self, held: HeldRequest) -> RequestKV:
        """Return its KV memory here, allocated if need be; the memory's own error says when it is full."""
        if held.kv is None:
            held.kv = self._runner.new_kv(held.last_tokens)
        return held.kv

    def drop_kv(self, request: int) -> None:
        """Preempt: keep the tokens; the KV must be computed again by chunks."""
        self._held[request].drop_kv()

    def forget(self, request: int) -> None:
        """Drop a request and its KV; unknown ids are ignored."""
        held = self._held.pop(request, None)
        if held is not None:
            held.drop_kv()

    def detach(self, request: int) -> None:
        """Remove it from the batch; its KV stays, to be moved elsewhere."""
        self._held[request].decoding = False

    def join(self, generated: Mapping[int, Sequence[int]]) -> None:
        """Let these requests decode from the next step on, after the tokens that any worker generated so far.

        Their KV, up to the last but one of their tokens, must be here in every layer of this worker.
        """
        for request, tokens in generated.items():
            held = self._held[request]
            known = held.prompt_tokens + len(tokens)
            if not tokens or held.computed != known - 1:
                raise ValueError(
                    f"request {request} is to decode after {known} tokens, but {held.computed} positions "
                    "have their KV in all layers here"
                )
            held.tokens[held.prompt_tokens :] = tokens
            held.decoding, held.hidden = not held.finished, None

    def has_residents(self) -> bool:
        """Whether a step without chunks would decode anything."""
        return any(held.decoding for held in list(self._held.values()))

    def residents(self) -> list[int]:
        """Requests that a step without chunks would decode, ascending."""
        return sorted([request for request, held in list(self._held.items()) if held.decoding])

    # Steps over all layers.

    @torch.inference_mode()
    def step(self, chunks: Sequence[Chunk], decode: bool, hand_over: bool = False) -> StepResult:
        """One step over the whole model.

        Requests that sample from a chunk of this step decode from the next step on. With ``hand_over`` they
        do not: their KV waits here for a worker that fetches it, or for a `join`.
        """
        residents = self.residents() if decode else []
        sampled: dict[int, int] = {}
        for request, start, tokens in chunks:
            self._prefill(request, start, tokens, sampled)
        rows = [self._row(self._held[request]) for request in residents]
        # When live batches end, an instance may for a while have more residents than a batch has rows.
        for begin in range(0, len(rows), self._runner.batch_size):
            end = begin + self._runner.batch_size
            sampled.update(zip(residents[begin:end], self._runner.decode(rows[begin:end])))
        return sampled, self._got(sampled, () if hand_over else sampled)

    def _prefill(self, request: int, start: int, tokens: int, sampled: dict[int, int]) -> None:
        held = self._held[request]
        self._require_continues(request, start, tokens)
        known, end = len(held.tokens), start + tokens
        hidden = self._runner.prefill(held.tokens[start:end], start, known, self.room(held))
        if end == known:
            sampled[request] = self._runner.sample(hidden)

    def _require_continues(self, request: int, start: int, tokens: int) -> None:
        held = self._held[request]
        known, end = len(held.tokens), start + tokens
        if start != held.computed or not start < end <= known or held.decoding:
            raise ValueError(
                f"chunk [{start}, {end}) of request {request} does not continue its {held.computed} computed "
                f"of {known} known tokens"
            )

    # Passes over some layers.

    @torch.inference_mode()
    def run_layers(
        self, chunks: Sequence[Chunk], layers: Span, decode: Sequence[int] = (), hand_over: bool = True
    ) -> StepResult:
        """One pass over layers [first, last) of ``chunks``, and of one more token of each of ``decode``.

        The output rows stay with each request (`hidden_of`), as input of the next layers, here or elsewhere.
        After the model's last layer the requests sample. With ``hand_over``, requests of ``chunks`` whose KV
        is then complete wait for a `join`; without it they decode here from the next step on.
        """
        span = LayerRange(*layers)
        sampled = pass_over(self._runner, self._parts(chunks, span), self._rows(decode, span), span)
        return sampled, self._got(sampled, () if hand_over else sampled)

    def hidden_of(self, held: HeldRequest) -> torch.Tensor:
        """[rows, hidden size], contiguous: the input of its next layer; at first its embedded tokens."""
        if held.hidden is None:
            held.hidden, held.depth = self._runner.embed(held.tokens[held.computed :]), 0
        return held.hidden

    def told(self, sampled: Mapping[int, int]) -> tuple[int, ...]:
        """Add tokens sampled by the worker of the last layers; returns the requests that are now complete."""
        return self._got(sampled, sampled)

    def _parts(self, chunks: Sequence[Chunk], layers: LayerRange) -> list[tuple[int, HeldRequest, Span]]:
        parts = []
        for request, start, tokens in chunks:
            held = self._held[request]
            self.room(held)
            self._require_depth(request, layers.first, start, start + tokens)
            parts.append((request, held, (start, start + tokens)))
        return parts

    def _rows(self, decode: Sequence[int], layers: LayerRange) -> list[tuple[int, HeldRequest]]:
        for request in decode:
            known = len(self._held[request].tokens)
            self._require_depth(request, layers.first, known - 1, known)
        return [(request, self._held[request]) for request in decode]

    def _require_depth(self, request: int, layer: int, start: int, end: int) -> None:
        """Require that these positions' rows are the layer's input and that earlier positions have KV."""
        held = self._held[request]
        if layer == 0 and (held.hidden is None or held.depth != 0):
            held.hidden, held.depth = self._runner.embed(held.tokens[start:end]), 0
        if held.hidden is None or held.depth != layer or held.hidden.shape[0] != end - start:
            rows = 0 if held.hidden is None else held.hidden.shape[0]
            raise ValueError(
                f"layer {layer} is to run positions [{start}, {end}) of request {request}, but {rows} rows "
                f"are here, for layer {held.depth}"
            )
        if held.positions(layer) not in (start, end):  # run for the first time, or once more
            raise ValueError(
                f"positions [{start}, {end}) of request {request} do not continue the "
                f"{held.positions(layer)} that layer {layer} has here"
            )

    # After sampling.

    def _row(self, held: HeldRequest) -> DecodeRow:
        assert held.kv is not None
        return DecodeRow(held.tokens[-1], len(held.tokens) - 1, held.kv)

    def _got(self, sampled: Mapping[int, int], stay: Collection[int]) -> tuple[int, ...]:
        """Add tokens. Requests in ``stay`` decode here from now on; others only if they did before."""
        for request, token in sampled.items():
            held = self._held[request]
            held.tokens.append(token)
            whole = held.computed == len(held.tokens) - 1
            held.decoding = whole and (held.decoding or request in stay)
        finished = tuple(sorted(request for request in sampled if self._held[request].finished))
        for request in finished:
            self.forget(request)
        return finished
