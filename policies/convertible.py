"""TokenScale's convertible decoders: decode instances that take prompts which prefill would answer too late.

Source: arXiv 2512.03416. Its objectives: first token within 250, 400 or 2,000 ms for prompts below 256, 1,024
and 8,192 tokens, 100 ms per output token. The number of convertible decoders is set before the run.
"""

from math import inf
from typing import Final

from policies.dispatch import LeastOutstanding
from serving.protocols.splitting import SplitView
from serving.vocabulary.estimates import Estimates
from serving.vocabulary.request import Request

TTFT_MS: Final = ((256, 250.0), (1024, 400.0), (inf, 2000.0))
"""Prompts below so many tokens, and the time to their first token (the paper's three classes)."""


class ConvertibleDecoders:
    """A prompt goes to a convertible decoder if prefill instances would take longer than its objective.

    Convertible: the ``decoders`` decode instances of lowest id. Prefill takes all prompt tokens that wait
    there over what its instances compute; a convertible decoder takes its own over its chunk per ``tpot_ms``.
    The decoder that is done first takes the prompt if it keeps the objective and has memory for the request;
    else the prompt waits for a prefill instance. ``ttft_ms`` null: the paper's by prompt length.
    ``chunk_tokens`` null: what a step computes within ``tpot_ms`` beside a full decode batch.
    """

    def __init__(
        self,
        *,
        estimates: Estimates,
        decoders: int = 1,
        ttft_ms: float | None = None,
        tpot_ms: float = 100.0,
        chunk_tokens: int | None = None,
    ) -> None:
        if decoders < 0 or not 0 < tpot_ms < inf or (ttft_ms is not None and not 0 < ttft_ms < inf):
            raise ValueError("decoders must be 0 or more, tpot_ms and ttft_ms above 0")
        if chunk_tokens is not None and chunk_tokens < 1:
            raise ValueError(f"chunk_tokens is {chunk_tokens}, and must be 1 or more")
        self._estimates, self._decoders, self._ttft_ms = estimates, decoders, ttft_ms
        self._tpot_s, self._chunk_tokens = tpot_ms / 1e3, chunk_tokens
        self.dispatch = LeastOutstanding().dispatch  # where instances do both

    def chunk_tokens(self, model: str) -> int:
        """Tokens of a step within ``tpot_ms``, at the estimated speed of prompts beside a full batch."""
        if self._chunk_tokens is not None:
            return self._chunk_tokens
        known = self._estimates.of(model)
        return max(1, int((self._tpot_s - known.decode_step_s) * known.prefill_tokens_per_s))

    def convert(self, request: Request, view: SplitView) -> tuple[int, str] | None:
        """The convertible decoder that answers first, if prefill is too slow for this prompt."""
        tokens, velocity = request.prompt_tokens, self._estimates.of(request.model).prefill_tokens_per_s
        limit_s = self._limit_s(tokens)
        waits_s = (view.backlog_tokens + tokens) / (velocity * len(view.prefill)) if view.prefill else inf
        if waits_s <= limit_s:
            return None
        chunk = self.chunk_tokens(request.model)
        options = [
            ((view.prompt_tokens(replica) + tokens) * self._tpot_s / chunk, replica)
            for replica in view.decode[: self._decoders]
            if view.has_room(replica, request)
        ]
        takes_s, replica = min(options, default=(inf, -1))
        if takes_s > limit_s:
            return None
        return replica, f"{takes_s * 1e3:.0f} ms in chunks of {chunk}, prefill takes {waits_s * 1e3:.0f}"

    def _limit_s(self, prompt_tokens: int) -> float:
        if self._ttft_ms is not None:
            return self._ttft_ms / 1e3
        return next(limit for below, limit in TTFT_MS if prompt_tokens < below) / 1e3
