"""What engines of a mixture of experts do together in a step, as integers: the group's part of step costs."""

from collections.abc import Sequence
from typing import Literal

from hwmodels.engine_overhead import EngineOverhead
from hwmodels.expert_times import ExpertTimes
from hwmodels.profile import Floats
from hwmodels.rows import FIXED_PER_S


class ExpertRows:
    """Fixed-point costs over the tokens of all engines of a data-parallel group (``hwmodels.rows``).

    A step of the group takes the longest of its engines' own parts (``StepRows``) and ``cost`` of the tokens
    that all of them compute: layer by layer they meet before the experts and behind them.
    """

    __slots__ = ("_costs", "_ends_s", "_overhead", "max_tokens", "times")

    def __init__(
        self,
        times: ExpertTimes,
        overhead: EngineOverhead,
        ends_s: tuple[Floats, Floats],
        seconds: Floats | None = None,
    ) -> None:
        """``ends_s``: lowest and highest seconds by tokens; ``seconds``: in place of those of ``times``."""
        self.times = times
        self._overhead = overhead
        self._ends_s = ends_s
        self.max_tokens: int = times.max_tokens
        by_tokens: list[float] = (times.by_tokens() if seconds is None else seconds).tolist()
        self._costs: list[int] = [int(one * FIXED_PER_S + 0.5) for one in by_tokens]

    def at_end(self, end: Literal["low", "high"]) -> "ExpertRows":
        """The same at an end of its error."""
        low, high = self._ends_s
        return ExpertRows(self.times, self._overhead, self._ends_s, low if end == "low" else high)

    def cost(self, tokens: int) -> int:
        """Exchange and experts of a step of ``tokens``, padded ones included; 0 of none."""
        if 0 <= tokens <= self.max_tokens:
            return self._costs[tokens]
        self.times.seconds(tokens)
        raise ValueError(f"a step of {tokens} tokens")

    def group_tokens(self, tokens: Sequence[int]) -> int:
        """What all engines compute when they have ``tokens``, one number for each; an idle one has 1.

        vLLM 0.19.0 (``v1/worker/dp_utils.py``): where all of them run as CUDA graphs each is padded to the
        largest captured size among them; else none is padded.
        """
        most = max(tokens)
        captured = self._overhead.graph_batches
        if captured and most <= captured[-1]:
            return len(tokens) * self._overhead.padded(most)
        return sum(tokens)
