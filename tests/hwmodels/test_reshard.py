"""Which rank sends which heads of the KV to which."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.catalogue import load_llm
from hwmodels.errors import HardwareError
from hwmodels.loading.reshard import Share, reshard
from hwmodels.models.attention import LatentAttention

LLAMA = load_llm("llama3_8b")


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


@given(source=st.sampled_from([1, 2, 4, 8]), target=st.sampled_from([1, 2, 4, 8]))
def test_resharding_loses_no_share(source: int, target: int) -> None:
    shares = reshard(LLAMA, source, target)
    for rank in range(target):
        assert sum(one.share for one in shares if one.target_rank == rank) == Fraction(1, target)
    for rank in range(source):
        assert sum(one.share for one in shares if one.source_rank == rank) == Fraction(1, source)


@given(source=st.sampled_from([1, 2, 4, 8, 16, 32]), target=st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_every_target_rank_gets_its_heads_once(source: int, target: int) -> None:
    shares = reshard(LLAMA, source, target)
    for rank in range(target):
        assert sum(one.share for one in shares if one.target_rank == rank) == Fraction(1, min(target, 8))
    assert sum(one.share for one in shares) == LLAMA.kv_copies(target)


def test_ranks_that_hold_the_same_head_send_it_in_turn() -> None:
    two = replace(LLAMA, heads=8, kv_heads=2)
    assert [(one.source_rank, one.target_rank) for one in reshard(two, 4, 4)] == [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
    ]
    assert [(one.source_rank, one.target_rank) for one in reshard(two, 2, 4)] == [
        (0, 0),
        (0, 1),
        (1, 2),
        (1, 3),
    ]


def test_every_rank_gets_a_latent_whole() -> None:
    latent = replace(
        LLAMA, latent=LatentAttention(kv_rank=512, rope=64, nope=128, value=128, query_rank=1536)
    )
    assert reshard(latent, 2, 4) == tuple(Share(target % 2, target, Fraction(1)) for target in (0, 2, 1, 3))


def test_ranks_that_cut_a_head_are_refused() -> None:
    with pytest.raises(HardwareError, match="tp=64 does not divide"):
        reshard(LLAMA, 2, 64)
    with pytest.raises(HardwareError, match="tp=4 does not divide"):
        reshard(replace(LLAMA, heads=12, kv_heads=6), 2, 4)
