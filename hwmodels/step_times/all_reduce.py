"""Time of one all-reduce inside a tensor-parallel group: a start and a rate, per stretch of message sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hwmodels.errors import HardwareError
from hwmodels.models.llm_shape import LlmShape

# Partial sums after the attention output and after the MLP (Megatron-style tensor parallelism).
ALL_REDUCES_PER_LAYER = 2


class Stretch(NamedTuple):
    """Messages of ``from_size`` and more take ``start_s + s_per_unit * size``, up to the next stretch.

    Sizes are bytes of a message, or tokens of a step in ``StepAllReduce``.
    """

    from_size: int
    start_s: float
    s_per_unit: float


@dataclass(frozen=True, slots=True)
class StepAllReduce:
    """All all-reduces of one step over its tokens; they overlap with nothing."""

    stretches: tuple[Stretch, ...]

    def line(self, tokens: int) -> tuple[float, float]:
        """(seconds at 0 tokens, seconds per token) of the stretch that contains a step of ``tokens``."""
        last = self.stretches[0]
        for stretch in self.stretches:
            if tokens < stretch.from_size:
                break
            last = stretch
        return last.start_s, last.s_per_unit

    def seconds(self, tokens: int) -> float:
        """Seconds of a step of ``tokens``."""
        start_s, s_per_token = self.line(tokens)
        return start_s + s_per_token * tokens


@dataclass(frozen=True, slots=True)
class RankTimes:
    """Messages between one number of ranks. ``label``: what a run's header says of them, if anything."""

    stretches: tuple[Stretch, ...]
    source: str
    label: str = ""


NO_TIME = RankTimes((Stretch(0, 0.0, 0.0),), "none")
NO_ALL_REDUCE = StepAllReduce(NO_TIME.stretches)


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Times per number of ranks between GPUs of one kind."""

    gpu: str
    ranks: Mapping[int, RankTimes]

    def of(self, tp: int) -> RankTimes:
        """The times between ``tp`` ranks; HardwareError if they are unknown."""
        if tp == 1:
            return NO_TIME
        if tp not in self.ranks:
            known = ", ".join(str(size) for size in sorted(self.ranks)) or "1 only"
            raise HardwareError(
                f"no all-reduce time is known for tp={tp} on {self.gpu}; write one of: {known}"
            )
        return self.ranks[tp]

    def of_step(self, llm: LlmShape, tp: int) -> StepAllReduce:
        """All all-reduces of a step of ``llm``, over its tokens."""
        if tp == 1:
            return NO_ALL_REDUCE
        times = ALL_REDUCES_PER_LAYER * llm.layers
        token_bytes = llm.hidden * llm.bytes_per_parameter
        return StepAllReduce(
            tuple(
                Stretch(
                    -(-stretch.from_size // token_bytes),
                    times * stretch.start_s,
                    times * token_bytes * stretch.s_per_unit,
                )
                for stretch in self.of(tp).stretches
            )
        )
