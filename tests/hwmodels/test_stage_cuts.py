"""Cuts of a model into pipeline stages: vLLM's own, by bytes, by time, and given ones."""

from itertools import combinations, pairwise

import pytest

from hwmodels.catalogue import load_llm
from hwmodels.errors import HardwareError
from hwmodels.models.load_units import model_units
from hwmodels.models.stage_cuts import balanced_cut, bytes_cut, even_cut, given_cut, time_cut


def counts(cut: tuple[range, ...]) -> list[int]:
    return [len(part) for part in cut]


@pytest.mark.parametrize(
    "layers, stages, expected",
    [
        (32, 4, [8, 8, 8, 8]),
        (80, 3, [27, 27, 26]),
        (34, 4, [8, 9, 9, 8]),
        (35, 4, [9, 9, 9, 8]),
        (33, 4, [8, 8, 9, 8]),
        (5, 5, [1] * 5),
        (7, 1, [7]),
    ],
)
def test_an_even_cut_is_that_of_vllm(layers: int, stages: int, expected: list[int]) -> None:
    """get_pp_indices of vLLM 0.19.0 gave these."""
    assert counts(even_cut(layers, stages)) == expected


def test_a_balanced_cut_has_the_lightest_heaviest_stage_of_all_cuts() -> None:
    weights, before, after = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0], 2.5, 3.5

    def heaviest(bounds: tuple[int, ...]) -> float:
        sums = [sum(weights[first:last]) for first, last in pairwise(bounds)]
        sums[0] += before
        sums[-1] += after
        return max(sums)

    for stages in range(1, 9):
        cut = balanced_cut(weights, before, after, stages)
        least = min(heaviest((0, *inner, 8)) for inner in combinations(range(1, 8), stages - 1))
        assert heaviest((0, *(part.stop for part in cut))) == least
        assert len(cut) == stages and all(cut)


def test_bytes_leave_the_last_stage_fewer_layers_and_keep_all_bytes() -> None:
    shape = load_llm("llama3_8b")
    even, by_bytes = even_cut(shape.layers, 4), bytes_cut(shape, 4)
    even_bytes, balanced_bytes = (
        [sum(unit.size_bytes for unit in model_units(shape, layers=part)) for part in cut]
        for cut in (even, by_bytes)
    )
    assert sum(even_bytes) == sum(balanced_bytes) == shape.weight_bytes
    assert max(balanced_bytes) < max(even_bytes)
    assert len(by_bytes[0]) < len(by_bytes[1])


def test_a_slow_head_takes_layers_from_the_last_stage() -> None:
    assert counts(time_cut(32, 0.0, 4)) == [8, 8, 8, 8]
    assert counts(time_cut(32, 4.0, 4)) == [9, 9, 9, 5]


def test_a_given_cut_holds_all_layers_once() -> None:
    assert given_cut(32, [9, 9, 9, 5])[3] == range(27, 32)
    with pytest.raises(HardwareError, match="add up to 32"):
        given_cut(32, [9, 9, 9, 9])
    with pytest.raises(HardwareError, match="write 1 to 4 stages"):
        even_cut(4, 5)
