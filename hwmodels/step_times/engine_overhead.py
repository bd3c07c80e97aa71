"""What a serving engine adds to the operations of a step: scheduling, sampling, launches, padded batches."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.step_times.step_error import ROUGH_SHARE, StepErrors
from hwmodels.step_times.step_time import Interplay, StepLimits, StepModel
from hwmodels.step_times.unequal_contexts import LongestShare

MAX_GRAPH_BATCH: Final = 512
# A declared overhead may be as far off as other declarations turned out to be (step_error.ROUGH_SHARE).
DECLARED_FACTOR: Final = 1.0 + ROUGH_SHARE
DECLARED_BAND: Final = f"x{1.0 / DECLARED_FACTOR:g} to x{DECLARED_FACTOR:g} of what is declared, assumed"
# An unknown engine adds between nothing and what vLLM (2024) added to a step, including Python: the line
# through CPU overheads in microsoft/vidur (MIT) at zero sequences, engine=vllm_v0.
UNKNOWN_STEP_S: Final = 9.0e-4
UNKNOWN_SOURCE: Final = "unknown, from none to the 0.9 ms a step of vLLM (2024)"
# Sorts of 64 to 512 sequences and 32,768 to 131,072 entries take 0.92e-10 to 1.76e-10 s an entry on H100
# (vllm-project/vllm, pull request 40376), 31 % around 1.34e-10.
SORT_SHARE: Final = 0.31


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOverhead:
    """``step_s`` and ``per_sequence_s`` are added to every step.

    ``per_output_token_s``: for every token that the decoding sequences have generated so far, if an engine
    processes all of them in each step (vLLM before 0.2 made their text anew).

    ``per_logit_s``: for each of a sequence's ``sorted_logits``, which are the vocabulary if its request
    samples with top-p and the engine sorts for it, else 0.

    ``graph_batches`` are the batch sizes captured as CUDA graphs, ascending: a step with up to the largest of
    them runs as the next captured size, including idle rows. ``source`` says where the numbers come from.
    ``inside``: the step times were measured whole, so nothing is added. ``error_s``: error of a step's
    overhead, if it was fitted to measured steps; None: it was not. ``per_sequence_error_s``: the error of
    ``per_sequence_s`` beside it.
    """

    step_s: float = 0.0
    per_sequence_s: float = 0.0
    graph_batches: tuple[int, ...] = ()
    source: str = "none declared"
    inside: bool = False
    error_s: float | None = None
    per_sequence_error_s: float = 0.0
    per_output_token_s: float = 0.0
    per_logit_s: float = 0.0
    sorted_logits: int = 0

    @property
    def sort_s(self) -> float:
        """What sorting its logits adds per sequence."""
        return self.per_logit_s * self.sorted_logits

    @property
    def sequence_s(self) -> float:
        """All that a sequence adds to a step."""
        return self.per_sequence_s + self.sort_s

    def __post_init__(self) -> None:
        for name in ("step_s", "per_sequence_s", "per_output_token_s", "per_logit_s"):
            value = getattr(self, name)
            if not 0.0 <= value < float("inf"):
                raise HardwareError(f"{name}={value} is not a time; write 0 or a positive number of seconds")
        if (
            list(self.graph_batches) != sorted(set(self.graph_batches))
            or min(self.graph_batches, default=1) < 1
        ):
            raise HardwareError(
                f"graph batches {self.graph_batches} must be increasing numbers of at least 1"
            )

    def ends(self, steps_judged: bool = False) -> tuple["EngineOverhead", "EngineOverhead", str]:
        """The least and the most it may be, and the reason; no range if it is inside the steps.

        ``steps_judged``: whole steps were judged with this overhead, so its error per step is in theirs.
        """
        if self.inside:
            return self, self, "inside the measured steps"
        if steps_judged:
            each_s = self.per_sequence_error_s
            told = f"; {1e6 * each_s:.2g} us a sequence either way" if each_s else ""
            return self._moved(0.0, -each_s), self._moved(0.0, each_s), f"judged with the steps{told}"
        if self.error_s is not None:
            step_s, each_s = self.error_s, self.per_sequence_error_s
            source = f"fitted, {1e3 * step_s:.2g} ms a step either way"
            if each_s:
                source += f" and {1e6 * each_s:.2g} us a sequence"
            if self.sort_s:
                source += f", {SORT_SHARE:.0%} of {1e6 * self.sort_s:.2g} us to sort its logits"
            low, high = self._moved(-step_s, -each_s, -SORT_SHARE), self._moved(step_s, each_s, SORT_SHARE)
            return low, high, source
        if not (self.step_s or self.sequence_s or self.per_output_token_s):
            return self, replace(self, step_s=UNKNOWN_STEP_S), UNKNOWN_SOURCE
        low, high = (self._times(1.0 / DECLARED_FACTOR), self._times(DECLARED_FACTOR))
        return low, high, DECLARED_BAND

    def _moved(self, step_s: float, per_sequence_s: float, sort_share: float = 0.0) -> "EngineOverhead":
        return replace(
            self,
            step_s=max(0.0, self.step_s + step_s),
            per_sequence_s=max(0.0, self.per_sequence_s + per_sequence_s),
            per_logit_s=self.per_logit_s * (1.0 + sort_share),
        )

    def _times(self, factor: float) -> "EngineOverhead":
        return replace(
            self,
            step_s=self.step_s * factor,
            per_sequence_s=self.per_sequence_s * factor,
            per_output_token_s=self.per_output_token_s * factor,
            per_logit_s=self.per_logit_s * factor,
        )

    def padded(self, tokens: int) -> int:
        """Rows the GPU computes for a step of ``tokens``."""
        batches = self.graph_batches
        position = bisect_left(batches, tokens)
        return batches[position] if position < len(batches) else tokens


def vllm_graph_batches(largest: int) -> tuple[int, ...]:
    """Batch sizes vLLM captures up to ``largest``, 512 at most (vLLM 0.19, _set_cudagraph_sizes)."""
    sizes = (1, 2, 4, *range(8, 256, 8), *range(256, MAX_GRAPH_BATCH + 1, 16))
    return tuple(size for size in sizes if size <= largest)


class EngineStepModel:
    """A step model's operations as one engine runs them; implements StepModel.

    ``unequal``: what unequal contexts cost if ``operations`` did not measure it; None: nothing.
    """

    __slots__ = (
        "decode_attention",
        "dense_s",
        "error_band",
        "errors",
        "interplay",
        "labels",
        "limits",
        "operations",
        "output_token_s",
        "overhead",
        "prefill_attention_s",
        "source",
        "unequal",
    )

    def __init__(
        self, operations: StepModel, overhead: EngineOverhead, unequal: LongestShare | None = None
    ) -> None:
        self.operations = operations
        self.overhead = overhead
        self.unequal = unequal
        # Idle rows have no context, so attention is that of the operations.
        self.decode_attention = operations.decode_attention
        self.prefill_attention_s = operations.prefill_attention_s
        self.interplay: Interplay | None = operations.interplay
        self.limits: StepLimits = operations.limits
        self.source: str = operations.source
        self.error_band: str = operations.error_band
        self.errors: StepErrors = operations.errors
        self.labels: tuple[str, ...] = operations.labels
        self.dense_s = _padded_dense(operations, overhead)
        self.output_token_s = overhead.per_output_token_s


def _padded_dense(operations: StepModel, overhead: EngineOverhead) -> Callable[[int, int, int], float]:
    """``StepModel.dense_s`` with idle rows, within the operations' range, plus the engine's time.

    A closure, because every step with chunks calls it.
    """
    dense_s, step_s, sequence_s = operations.dense_s, overhead.step_s, overhead.sequence_s
    largest = max(overhead.graph_batches, default=-1)
    idle_rows = [overhead.padded(tokens) - tokens for tokens in range(largest + 1)]
    last_prefill, last_decode = operations.limits.max_prefill_tokens, operations.limits.max_decode_sequences

    def padded_s(prefill_tokens: int, prefill_sequences: int, decode_sequences: int) -> float:
        tokens, sequences = prefill_tokens + decode_sequences, prefill_sequences + decode_sequences
        if tokens <= largest:
            if prefill_tokens:
                idle = idle_rows[tokens]
                if tokens + idle <= last_prefill:
                    prefill_tokens += idle
            else:
                decode_sequences = min(decode_sequences + idle_rows[tokens], last_decode)
        seconds = dense_s(prefill_tokens, prefill_sequences, decode_sequences) + step_s
        return seconds + sequence_s * sequences

    return padded_s
