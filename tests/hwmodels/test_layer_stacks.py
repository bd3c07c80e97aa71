"""Models without KV: the published sizes and times, and the cuts into stages."""

import pytest

from hwmodels.errors import HardwareError
from hwmodels.layer_stack import LayerStack, even_cut, spans_of
from hwmodels.stack_catalogue import load_stack, stack_names

GIB = 1 << 30


def stage_gib(stack: LayerStack) -> list[float]:
    return [stack.bytes_of(*span) / GIB for span in spans_of(stack.cut, stack.layers)]


def test_sizes_and_times_are_the_published_ones() -> None:
    published = {
        "whisper_9b": (2.9, 74, 3),
        "bert_21b": (43, 137, 8),
        "llama_7b_pass": (14, 243, 7),
        "opt_66b_pass": (132, 278, 8),
        "wide_resnet": (16, 646, 8),
    }
    assert set(stack_names()) == set(published)
    for name, (size_gb, execution_ms, stages) in published.items():
        stack = load_stack(name)
        assert stack.weight_bytes / 1e9 == pytest.approx(size_gb, rel=0.04)
        assert stack.execution_s * 1e3 == pytest.approx(execution_ms)
        assert len(stack.cut) + 1 == stages
        assert "QUART" in stack.source


def test_stages_have_the_sizes_of_the_released_code() -> None:
    assert stage_gib(load_stack("opt_66b_pass")) == pytest.approx([4.70, *[17.09] * 6, 15.19], abs=0.02)
    bert = stage_gib(load_stack("bert_21b"))
    assert min(bert) == pytest.approx(4.86, abs=0.01) and max(bert) == pytest.approx(5.25, abs=0.02)


def test_equal_cuts_of_parameters_are_not_equal_cuts_of_time() -> None:
    stack = LayerStack("uneven", (1, 1, 1, 9), (4.0, 1.0, 1.0, 2.0), 1, 0, (), "made up")
    by_bytes, by_time = even_cut(stack.layer_bytes, 2), even_cut(stack.layer_s, 2)
    assert by_bytes == (3,) and by_time == (1,)
    assert spans_of(by_time, 4) == ((0, 1), (1, 4))


@pytest.mark.parametrize(
    ("weights", "stages", "cut"),
    [([1.0] * 10, 4, (3, 6, 8)), ([5, 1, 1, 1, 1, 1], 2, (1,)), ([2, 1], 1, ()), ([1, 2, 3], 3, (1, 2))],
)
def test_even_cuts(weights: list[float], stages: int, cut: tuple[int, ...]) -> None:
    assert even_cut(weights, stages) == cut


def test_even_cut_is_the_best_of_all() -> None:
    from itertools import combinations

    weights = [3, 1, 4, 1, 5, 9, 2, 6]
    for stages in range(1, 9):
        found = max(sum(weights[a:b]) for a, b in spans_of(even_cut(weights, stages), 8))
        cuts = combinations(range(1, 8), stages - 1)
        assert found == min(max(sum(weights[a:b]) for a, b in spans_of(cut, 8)) for cut in cuts)


def test_what_cannot_be_cut_is_refused() -> None:
    with pytest.raises(HardwareError, match="cannot be cut into 9 stages: write 1 to 8"):
        even_cut([1.0] * 8, 9)
    with pytest.raises(HardwareError, match="write first layers of stages"):
        spans_of((4, 4), 8)
    with pytest.raises(HardwareError, match="is no model without KV"):
        load_stack("bert")
