"""What unequal contexts of decoding sequences cost where no table measured it: unequal_contexts.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hwmodels.catalogue import read_yaml
from hwmodels.gpus.gpu import Gpu
from hwmodels.models.llm_shape import LlmShape

UNEQUAL_CONTEXTS_FILE: Final = "unequal_contexts.yaml"
UNKNOWN: Final = "unknown"
WAVES: Final = "waves"
# Rows of queries that one tile of prompts has (FlashAttention-2 and -3 with heads of 128: 128 rows).
TILE_ROWS: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class LongestShare:
    """Share alpha in [0, 1]: unequal contexts cost as if each were mean + alpha * (largest - mean).

    ``constant``: alpha itself; None: by waves. ``tiles``: tiles that the GPU's SMs work on at once for each
    KV head of a rank; None: unknown, so the longest decides. ``queries``: query heads that share a KV head.
    """

    constant: float | None
    tiles: float | None
    queries: int

    def skew(self, decode_sequences: int, prefill_tokens: int) -> float:
        """Alpha of a step; prompts beside the sequences fill the SMs with tiles of their own."""
        if self.constant is not None or self.tiles is None:
            alone = decode_sequences < 2
            return 0.0 if alone else 1.0 if self.constant is None else self.constant
        wanted = decode_sequences + -(-prefill_tokens * self.queries // TILE_ROWS)
        return min(1.0, self.tiles / wanted) if decode_sequences > 1 else 0.0

    def in_words(self) -> str:
        """How much the longest counts."""
        if self.constant is None:
            return "as the longest of a wave" if self.tiles is not None else "as the longest"
        return f"{self.constant:.0%} as the longest" if self.constant else "as their total"

    @property
    def counts(self) -> bool:
        """Whether alpha is above 0 anywhere."""
        return self.constant != 0.0


@dataclass(frozen=True, slots=True)
class UnequalContexts:
    """The share that a run takes and those at both ends of its range, and why."""

    low: LongestShare
    usual: LongestShare
    high: LongestShare
    kernel: str
    source: str

    def in_short(self) -> str:
        """The ends in a few words."""
        ends = self.low.in_words(), self.high.in_words()
        return f"unequal contexts {' to '.join(dict.fromkeys(ends))} ({self.kernel.replace('_', ' ')})"

    def told(self) -> str:
        """In one phrase, for what a range rests on."""
        return f"unequal contexts, {self.kernel.replace('_', ' ')}: {self.source}"


def unequal_contexts(gpu: Gpu, llm: LlmShape, tp: int) -> UnequalContexts:
    """What the catalogue knows of the kernel on this GPU, for a rank's KV heads."""
    kernels = read_yaml(UNEQUAL_CONTEXTS_FILE)
    kernel = next((name for name, entry in kernels.items() if gpu.name in entry["gpus"]), UNKNOWN)
    entry: Mapping[str, Any] = kernels[kernel]
    heads = 1 if llm.latent is not None else max(1, llm.kv_heads // tp)
    tiles = None if gpu.sms is None else gpu.sms / heads
    queries = max(1, llm.heads // tp // heads)

    def share(end: str) -> LongestShare:
        value = entry[end]
        constant = None if value == WAVES else float(value)
        return LongestShare(constant=constant, tiles=tiles, queries=queries)

    source = " ".join(entry["source"].split())
    return UnequalContexts(share("low"), share("usual"), share("high"), kernel, source)
