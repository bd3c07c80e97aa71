"""Catalogue entries, the bytes that follow from them, and the KV memory beside the weights."""

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.catalogue import gpu_names, llm_names, load_gpu, load_llm, read_yaml
from hwmodels.errors import HardwareError
from hwmodels.models.kv_capacity import kv_capacity
from hwmodels.step_times.all_reduce_catalogue import load_all_reduce

A100 = load_gpu("a100_80g")
LLAMA3_8B = load_llm("llama3_8b")
QWEN2_5_72B = load_llm("qwen2_5_72b")
GIB = 1 << 30


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("llama3_8b", 8_030_261_248), ("llama2_7b", 6_738_415_616), ("qwen2_5_72b", 72_706_203_648)],
)
def test_parameters_equal_the_published_counts(name: str, parameters: int) -> None:
    assert load_llm(name).parameters == parameters


@pytest.mark.parametrize(
    ("name", "kv_bytes"),
    [("llama3_8b", 131_072), ("llama2_7b", 524_288), ("qwen2_5_72b", 327_680), ("tiny_llama", 4_096)],
)
def test_kv_bytes_per_token(name: str, kv_bytes: int) -> None:
    assert load_llm(name).kv_bytes_per_token == kv_bytes


def test_weights_of_8b_are_about_16_gb() -> None:
    assert 15.9e9 < LLAMA3_8B.weight_bytes < 16.2e9


def test_tied_embeddings_are_counted_once() -> None:
    tied = replace(LLAMA3_8B, tied_embeddings=True)
    assert LLAMA3_8B.parameters - tied.parameters == LLAMA3_8B.vocab * LLAMA3_8B.hidden


def test_every_number_of_every_gpu_has_a_source() -> None:
    for name, entry in read_yaml("gpus.yaml").items():
        for key, number in entry.items():
            assert key == "names" or number["source"], f"{name}.{key}"
        assert "memory_bytes" in load_gpu(name).source


def test_every_model_and_linear_entry_has_a_source() -> None:
    assert all(load_llm(name).source for name in llm_names())
    assert all(entry["source"] for entry in read_yaml("linear.yaml"))


def test_catalogue_entries_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        LLAMA3_8B.layers = 1  # type: ignore[misc]


@pytest.mark.parametrize(("typo", "meant"), [("A100-PCIE-40GB", "a100_40g"), ("cpu", "cpu_core")])
def test_unknown_gpu_names_the_nearest_and_all_others(typo: str, meant: str) -> None:
    with pytest.raises(HardwareError) as refused:
        load_gpu(typo)
    assert f"write '{meant}'" in str(refused.value)
    assert all(name in str(refused.value) for name in gpu_names())


def test_unknown_model_names_the_nearest() -> None:
    with pytest.raises(HardwareError, match="'llama-3-8b': write 'llama3_8b' or another of deepseek_v2_lite"):
        load_llm("llama-3-8b")


def test_all_reduce_refuses_an_unknown_group_size() -> None:
    nvlink = load_all_reduce("a100_80g")
    assert nvlink.of_step(LLAMA3_8B, 1).seconds(1000) == 0.0
    with pytest.raises(HardwareError, match="tp=16 on a100_80g; write one of: 2, 4, 8"):
        nvlink.of(16)
    with pytest.raises(HardwareError, match="cpu_core"):
        load_all_reduce("cpu_core").of(2)


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(HardwareError, match="write one of 1, 2, 4, 8"):
        LLAMA3_8B.require_tp(3)


def test_kv_capacity_meets_what_vllm_reported() -> None:
    """vLLM printed 53.29 GiB of KV for this model, GPU and utilization (its pull request 10511)."""
    capacity = kv_capacity(A100, LLAMA3_8B, tp=1, memory_utilization=0.9, block_tokens=16)
    assert capacity.tokens == capacity.blocks * 16
    assert capacity.tokens * LLAMA3_8B.kv_bytes_per_token / GIB == pytest.approx(53.29, abs=0.01)


def test_kv_capacity_by_hand() -> None:
    gpu = replace(A100, memory_bytes=1000 + LLAMA3_8B.weight_bytes + 10 * 16 * 131_072)
    capacity = kv_capacity(
        gpu, LLAMA3_8B, tp=1, memory_utilization=1.0, block_tokens=16, activation_reserve_bytes=1000
    )
    assert (capacity.blocks, capacity.tokens) == (10, 160)
    assert "10 blocks = 160 tokens" in capacity.arithmetic and "\n" not in capacity.arithmetic
    assert (
        kv_capacity(
            gpu, LLAMA3_8B, tp=1, memory_utilization=1.0, block_tokens=16, activation_reserve_bytes=1001
        ).blocks
        == 9
    )


@given(st.floats(0.5, 0.95), st.integers(0, 1 << 31), st.sampled_from([1, 2, 4, 8]))
def test_kv_capacity_grows_with_memory_and_shrinks_with_the_reserve(
    utilization: float, reserve: int, tp: int
) -> None:
    def blocks(utilization: float, reserve: int, tp: int) -> int:
        return kv_capacity(
            A100,
            LLAMA3_8B,
            tp=tp,
            memory_utilization=utilization,
            block_tokens=16,
            activation_reserve_bytes=reserve,
        ).blocks

    here = blocks(utilization, reserve, tp)
    assert blocks(utilization + 0.05, reserve, tp) > here > blocks(utilization, reserve + (1 << 28), tp)
    assert tp == 8 or blocks(utilization, reserve, 2 * tp) > here


def test_too_large_a_model_names_gigabytes_and_the_smallest_tp() -> None:
    with pytest.raises(HardwareError) as refused:
        kv_capacity(A100, QWEN2_5_72B, tp=1, memory_utilization=0.9, block_tokens=16)
    needed = QWEN2_5_72B.weight_bytes + 16 * QWEN2_5_72B.kv_bytes_per_token
    available = int(A100.memory_bytes * 0.9) - A100.activation_reserve_bytes
    assert f"need {needed / 1e9:.1f} GB, and {available / 1e9:.1f} GB are left" in str(refused.value)
    assert "write model.tp=2, the smallest that fits" in str(refused.value)
    assert kv_capacity(A100, QWEN2_5_72B, tp=2, memory_utilization=0.9, block_tokens=16).blocks > 0


def test_a_model_no_tp_fits_says_so() -> None:
    with pytest.raises(HardwareError, match=r"no model\.tp of 1, 2, 4, 8 fits"):
        kv_capacity(
            replace(A100, memory_bytes=8 * GIB), QWEN2_5_72B, tp=1, memory_utilization=0.9, block_tokens=16
        )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("memory_utilization", 0.0),
        ("memory_utilization", 1.1),
        ("block_tokens", 0),
        ("activation_reserve_bytes", -1),
    ],
)
def test_kv_settings_out_of_range_are_refused(key: str, value: float) -> None:
    settings: dict[str, Any] = {"memory_utilization": 0.9, "block_tokens": 16, key: value}
    with pytest.raises(HardwareError, match=key):
        kv_capacity(A100, LLAMA3_8B, tp=1, **settings)


def test_a_replica_of_some_layers_has_memory_for_their_weights_and_kv_only() -> None:
    """Layers 8 to 16 of 32: a quarter of the layers and of a token's KV, no embedding, no head."""
    shape, room = LLAMA3_8B, int(A100.memory_bytes * 0.9) - A100.activation_reserve_bytes
    layer_bytes, token_bytes = shape.parameters_of(shape.layers - 1) * 2, shape.kv_bytes_per_token // 4
    middle = kv_capacity(A100, shape, tp=1, memory_utilization=0.9, block_tokens=16, layers=range(8, 16))
    assert middle.blocks == (room - 8 * layer_bytes) // (token_bytes * 16)
    first = kv_capacity(A100, shape, tp=1, memory_utilization=0.9, block_tokens=16, layers=range(8))
    table_bytes = shape.embedding_parameters * 2
    assert first.blocks == (room - 8 * layer_bytes - table_bytes) // (token_bytes * 16)
    assert f"{token_bytes} B per token" in first.arithmetic
    whole = range(shape.layers)
    assert kv_capacity(
        A100, shape, tp=1, memory_utilization=0.9, block_tokens=16, layers=whole
    ) == kv_capacity(A100, shape, tp=1, memory_utilization=0.9, block_tokens=16)
