"""Where a model is cut into pipeline stages: contiguous ranges of layers, the first stage first.

The embedding is in the first stage, head and sampling in the last one.
"""

import itertools
from collections.abc import Sequence
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.load_units import model_units

Cut = tuple[range, ...]
CUTS: Final = ("layers", "bytes", "time")
"""Names of cuts; a cut can also be given as the number of layers of each stage."""


def even_cut(layers: int, stages: int) -> Cut:
    """Equal numbers of layers for each stage, as vLLM cuts (0.19, vllm/distributed/utils.py:get_pp_indices).

    Remaining layers go to the stages before the last one, one layer each, from the back.
    """
    _check_stages(layers, stages)
    counts = [layers // stages] * stages
    for back in range(2, layers % stages + 2):
        counts[-back] += 1
    return _ranges(counts)


def given_cut(layers: int, counts: Sequence[int]) -> Cut:
    """Stages with ``counts`` layers (vLLM: VLLM_PP_LAYER_PARTITION). Raises HardwareError."""
    if not counts or min(counts) < 1 or sum(counts) != layers:
        text = ",".join(map(str, counts))
        raise HardwareError(
            f"a cut into stages of {text or 'no'} layers does not fit {layers} layers: write numbers of at "
            f"least 1 that add up to {layers}"
        )
    return _ranges(counts)


def balanced_cut(weights: Sequence[float], before: float, after: float, stages: int) -> Cut:
    """The cut with the lightest heaviest stage, each layer weighing ``weights``.

    The first stage also carries ``before``, the last one ``after``. Among equal cuts the one with the largest
    early stages is chosen.
    """
    layers = len(weights)
    _check_stages(layers, stages)
    sums = [0.0]
    for weight in weights:
        sums.append(sums[-1] + weight)
    # best[count] of the stages so far: (heaviest stage, first layer of the last stage) with count layers.
    heaviest = [before + total for total in sums]
    begins: list[list[int]] = []
    for stage in range(1, stages):
        extra = after if stage == stages - 1 else 0.0
        best, begin = [float("inf")] * (layers + 1), [0] * (layers + 1)
        for last in range(stage + 1, layers + 1):
            for first in range(stage, last):
                heavy = max(heaviest[first], sums[last] - sums[first] + extra)
                if heavy <= best[last]:
                    best[last], begin[last] = heavy, first
        heaviest = best
        begins.append(begin)
    bounds = [layers]
    for begin in reversed(begins):
        bounds.append(begin[bounds[-1]])
    bounds.append(0)
    bounds.reverse()
    return tuple([range(first, last) for first, last in itertools.pairwise(bounds)])


def bytes_cut(shape: LlmShape, stages: int) -> Cut:
    """Minimise the bytes of the largest stage, including embedding and head."""
    sizes = [
        unit.size_bytes for unit in model_units(shape, layers=range(shape.layers)) if unit.layer is not None
    ]
    table = shape.embedding_parameters * shape.bytes_per_parameter
    positions = shape.position_rows * shape.hidden * shape.bytes_per_parameter
    norm = shape.final_norm_parameters * shape.bytes_per_parameter
    return balanced_cut(sizes, table + positions, table + norm, stages)


def time_cut(layers: int, head_layers: float, stages: int) -> Cut:
    """Minimise the time of the slowest stage, if the head takes as long as ``head_layers`` layers."""
    return balanced_cut([1.0] * layers, 0.0, head_layers, stages)


def _ranges(counts: Sequence[int]) -> Cut:
    cut, first = [], 0
    for count in counts:
        cut.append(range(first, first + count))
        first += count
    return tuple(cut)


def _check_stages(layers: int, stages: int) -> None:
    if not 1 <= stages <= layers:
        raise HardwareError(f"{stages} stages of {layers} layers: write 1 to {layers} stages")
