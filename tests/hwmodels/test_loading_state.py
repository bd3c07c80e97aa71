"""Bytes of KV and activations on the move, and who sends what to whom."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.catalogue import load_llm
from hwmodels.errors import HardwareError
from hwmodels.loading.state import activation_bytes, kv_bytes, kv_moves, reshard

LLAMA = load_llm("llama3_8b")


@pytest.mark.parametrize(
    ("name", "kib"), [("llama3_8b", 128), ("llama2_7b", 512), ("mistral_24b", 160), ("qwen2_5_72b", 320)]
)
def test_kv_of_a_token_is_what_is_published(name: str, kib: int) -> None:
    assert kv_bytes(load_llm(name), 1, block_tokens=1) == kib * 1024


def test_kv_moves_by_whole_blocks() -> None:
    assert kv_bytes(LLAMA, 0) == 0
    assert kv_bytes(LLAMA, 1) == kv_bytes(LLAMA, 16) == 16 * 128 * 1024
    assert kv_bytes(LLAMA, 17) == 2 * kv_bytes(LLAMA, 16)
    assert kv_bytes(LLAMA, 17, block_tokens=1) == 17 * 128 * 1024


def test_kv_of_layers_and_ranks_adds_up() -> None:
    whole = kv_bytes(LLAMA, 1000)
    assert kv_bytes(LLAMA, 1000, layers=5) + kv_bytes(LLAMA, 1000, layers=27) == whole
    assert kv_bytes(LLAMA, 1000, tp=4) * 4 == whole
    assert kv_bytes(LLAMA, 1000, layers=1) * 32 == whole


def test_activations_are_tokens_times_hidden_times_width() -> None:
    assert activation_bytes(LLAMA, 1000) == 1000 * 4096 * 2


def test_equal_ranks_send_to_each_other() -> None:
    assert [(one.source_rank, one.target_rank, one.share) for one in reshard(LLAMA, 2, 2)] == [
        (0, 0, Fraction(1, 2)),
        (1, 1, Fraction(1, 2)),
    ]


def test_unequal_ranks_send_the_heads_they_have_in_common() -> None:
    six = replace(LLAMA, heads=12, kv_heads=6)
    assert [(one.source_rank, one.target_rank, one.share * 6) for one in reshard(six, 2, 3)] == [
        (0, 0, 2),
        (0, 1, 1),
        (1, 1, 1),
        (1, 2, 2),
    ]


@given(
    source=st.sampled_from([1, 2, 4, 8]), target=st.sampled_from([1, 2, 4, 8]), tokens=st.integers(0, 5000)
)
def test_resharding_loses_no_byte(source: int, target: int, tokens: int) -> None:
    moves = kv_moves(LLAMA, tokens, source, target)
    assert sum(move.size_bytes for move in moves) == kv_bytes(LLAMA, tokens)
    assert sum(share.share for share in reshard(LLAMA, source, target)) == 1
    for rank in range(target):
        into = sum(move.size_bytes for move in moves if move.target_rank == rank)
        assert into == kv_bytes(LLAMA, tokens, tp=target)
    for rank in range(source):
        out = sum(move.size_bytes for move in moves if move.source_rank == rank)
        assert out == kv_bytes(LLAMA, tokens, tp=source)


def test_what_state_refuses() -> None:
    with pytest.raises(HardwareError, match="tp=16 does not divide"):
        reshard(LLAMA, 2, 16)
    with pytest.raises(HardwareError, match="write 0 to 32"):
        kv_bytes(LLAMA, 1, layers=33)
    with pytest.raises(HardwareError, match="write at least 0 tokens and 1 token per block"):
        kv_bytes(LLAMA, -1)
    with pytest.raises(HardwareError, match="write at least 0 tokens and 1 token per block"):
        kv_bytes(LLAMA, 1, block_tokens=0)
    with pytest.raises(HardwareError, match="activations are of -1 tokens"):
        activation_bytes(LLAMA, -1)
