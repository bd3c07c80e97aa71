"""Models without KV: the published sizes and times, and the cuts into stages."""

import pytest

from hwmodels.catalogue.stacks import cut_stack, load_stack, stack_names
from hwmodels.errors import HardwareError
from hwmodels.models.layer_stack import LayerStack

GIB = 1 << 30


def stage_gib(stack: LayerStack) -> list[float]:
    return [stack.bytes_of(one.start, one.stop) / GIB for one in cut_stack(stack, "published", None)]


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
        assert len(stack.cut) == stages
        assert "QUART" in stack.source


def test_stages_have_the_sizes_of_the_released_code() -> None:
    assert stage_gib(load_stack("opt_66b_pass")) == pytest.approx([4.70, *[17.09] * 6, 15.19], abs=0.02)
    bert = stage_gib(load_stack("bert_21b"))
    assert min(bert) == pytest.approx(4.86, abs=0.01) and max(bert) == pytest.approx(5.25, abs=0.02)


def test_equal_cuts_of_parameters_are_not_equal_cuts_of_time() -> None:
    stack = LayerStack(
        name="uneven",
        layer_bytes=(1, 1, 1, 9),
        layer_s=(4.0, 1.0, 1.0, 2.0),
        tokens=1,
        activation_bytes=0,
        cut=(),
        source="made up",
    )
    assert cut_stack(stack, "layers", 2) == (range(2), range(2, 4))
    assert cut_stack(stack, "bytes", 2) == (range(3), range(3, 4))
    assert cut_stack(stack, "time", 2) == (range(1), range(1, 4))


def test_what_cannot_be_cut_is_refused() -> None:
    with pytest.raises(HardwareError, match="8 stages, not in 5: write"):
        cut_stack(load_stack("bert_21b"), "published", 5)
    with pytest.raises(HardwareError, match="100 stages of 99 layers: write 1 to 99 stages"):
        cut_stack(load_stack("bert_21b"), "layers", 100)
    with pytest.raises(HardwareError, match="is not a model without KV"):
        load_stack("bert")
