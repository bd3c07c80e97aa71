"""Step times of a staged model: the time of each request at each stage."""

from collections.abc import Mapping, Sequence

from serving.vocabulary.actions import Chunk, Span
from serving.vocabulary.units import FRACTION_BITS
from simcore.replica.step_times import Pieces


class StageTimes:
    """``StepTimes`` of passes over the layers of a stage.

    ``fixed``: for each span of layers and each request, the time of a pass of the request alone on
    ``cpu_cores`` cores, in fixed point. ``cpu_parts`` of 1,024 of it are CPU work on the host, which more
    cores divide and which does not occupy the GPU. A batch takes as long as its longest request plus
    ``batch_parts`` of 1,024 of each other one.
    """

    __slots__ = ("_batch_parts", "_cpu_cores", "_cpu_parts", "_fixed")

    def __init__(
        self, fixed: Mapping[Span, Sequence[int]], cpu_cores: int, cpu_parts: int, batch_parts: int
    ) -> None:
        self._fixed = dict(fixed)
        self._cpu_cores = cpu_cores
        self._cpu_parts = cpu_parts
        self._batch_parts = batch_parts

    def gpu_fixed(self, chunks: Sequence[Chunk], span: Span) -> int:
        """How long the pass occupies the GPU."""
        whole = self._whole(chunks, span)
        return max(1, whole - (whole * self._cpu_parts >> 10))

    def cpu_ns(self, chunks: Sequence[Chunk], span: Span, cores: int) -> int:
        """CPU time before the GPU part, with ``cores`` cores."""
        work = self._whole(chunks, span) * self._cpu_parts >> 10
        return work * self._cpu_cores // cores >> FRACTION_BITS

    def _whole(self, chunks: Sequence[Chunk], span: Span) -> int:
        if span not in self._fixed:
            return self._some(chunks, span)
        times = self._fixed[span]
        if len(chunks) == 1:
            return times[chunks[0][0]]
        batch_times = [times[chunk[0]] for chunk in chunks]
        longest = max(batch_times)
        return longest + ((sum(batch_times) - longest) * self._batch_parts >> 10)

    def _some(self, chunks: Sequence[Chunk], span: Span) -> int:
        """Time of some equal layers of a stage: each costs the growth of the rounded sum up to it."""
        first, last = next(cost for cost in self._fixed if cost[0] <= span[0] and span[1] <= cost[1])
        whole, count = self._whole(chunks, (first, last)), last - first
        return whole * (span[1] - first) // count - whole * (span[0] - first) // count

    def decode(self, n: int) -> Pieces:
        """Not used: no request decodes."""
        raise AssertionError("a model in stages answers in one pass")

    def mixed(self, n: int, context: int, chunks: Sequence[Chunk], spread: int = 0) -> int:
        """A pass over the layers of a stage."""
        raise AssertionError("a pass of a model in stages names its layers")

    @property
    def output_token(self) -> int:
        """Always 0: no tokens are generated."""
        return 0

    @property
    def skewed(self) -> bool:
        """Always False: there is no context."""
        return False

    def shift(self, n: int, spread: int) -> int:
        """Always 0: there is no context."""
        return 0
