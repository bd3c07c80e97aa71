"""The common part of a step of data-parallel engines with a mixture of experts, as integers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Floats
from hwmodels.step_times.engine_overhead import EngineOverhead
from hwmodels.step_times.rows import FIXED_PER_S


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """Seconds at 0, 1, ... tokens of all engines: of the slowest rank's experts, and of the exchange."""

    experts_s: Floats
    moved_s: Floats


class ExpertRows:
    """Fixed-point costs over the tokens of all engines of a data-parallel group (``step_times.rows``).

    A step of the group takes the longest of its engines' own parts (``StepRows``) plus ``group_cost`` for the
    tokens of each. In every layer the engines synchronise before and after the experts.
    """

    # The reason for the ends of the range (hwmodels.step_times.expert_error:group_ends_s).
    rests_on: Final = (
        "experts within held-out p95, chosen alike or by a power law; exchange within a factor of 2"
    )
    __slots__ = ("_ends", "_experts", "_moved", "_overhead", "max_tokens")

    def __init__(
        self, times: GroupTimes, overhead: EngineOverhead, ends: tuple[GroupTimes, GroupTimes]
    ) -> None:
        """``ends``: the lowest and the highest plausible times."""
        self._overhead = overhead
        self._ends = ends
        self._experts, self._moved = _fixed(times.experts_s), _fixed(times.moved_s)
        self.max_tokens: int = len(self._experts) - 1

    def at_end(self, end: Literal["low", "high"]) -> "ExpertRows":
        """The same costs at one end of their error."""
        low, high = self._ends
        return ExpertRows(low if end == "low" else high, self._overhead, self._ends)

    def group_cost(self, tokens: Sequence[int]) -> int:
        """Exchange and experts of a step in which engines have ``tokens``, one number each; an idle one 1.

        vLLM 0.19.0 (``v1/worker/dp_utils.py``): if all engines run as CUDA graphs, each is padded to the
        largest captured size among them; else none is padded. The exchange then consists of broadcasts and
        reductions of unequal sizes in one group of NCCL (``pynccl.py``). It is assumed to end with the
        largest, as if all had as many tokens, since links carry both directions at once.
        """
        most = max(tokens)
        captured = self._overhead.graph_batches
        if captured and most <= captured[-1]:
            most = self._overhead.padded(most)
            return self.cost(len(tokens) * most, len(tokens) * most)
        return self.cost(sum(tokens), len(tokens) * most)

    def cost(self, tokens: int, moved_tokens: int) -> int:
        """Experts of ``tokens``, including padding, and the exchange of ``moved_tokens``."""
        try:
            return self._experts[tokens] + self._moved[moved_tokens]
        except IndexError:
            raise HardwareError(
                f"a step of {tokens} tokens of all engines, and {moved_tokens} exchanged, is beyond the "
                f"{self.max_tokens} and {len(self._moved) - 1} that have expert times; lower "
                "the engine's max_num_batched_tokens"
            ) from None


def _fixed(seconds: Floats) -> list[int]:
    return [int(value * FIXED_PER_S + 0.5) for value in seconds.tolist()]
