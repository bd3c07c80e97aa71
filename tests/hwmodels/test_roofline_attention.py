"""The roofline of mixtures, latents, windows and states: bytes over bandwidth, operations over their rate."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.models.attention import LatentAttention, LinearAttention, SparseIndex
from hwmodels.models.experts import Experts
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.parallelism import Parallelism
from hwmodels.step_times.all_reduce_catalogue import load_all_reduce
from hwmodels.step_times.expert_times import SharedExperts
from hwmodels.step_times.roofline_attention import attention_rates
from hwmodels.step_times.roofline_experts import roofline_experts
from hwmodels.step_times.select import step_model

H200 = load_gpu("h200")
DENSE = load_llm("llama3_8b")
LATENT = replace(
    DENSE,
    latent=LatentAttention(kv_rank=512, rope=64, nope=128, value=128, query_rank=1536),
    heads=32,
    kv_heads=32,
    head_dim=192,
)
MIXTURE = replace(
    DENSE, experts=Experts(count=64, per_token=4, width=1024, shared_width=1024, dense_layers=2)
)


def rates(shape: LlmShape, tp: int = 1) -> tuple[float, float, float, float]:
    found = attention_rates(H200, shape, tp, compute=1.0, memory=1.0)
    return found.read_s_per_token, found.read_s_per_sequence, found.square_s, found.new_token_s


def test_grouped_queries_read_their_kv_and_multiply_pairs() -> None:
    read, fixed, square, new = rates(DENSE, 4)
    assert read == pytest.approx(DENSE.kv_bytes_per_token / (4 * H200.memory_bandwidth_bytes_per_s))
    assert square == pytest.approx(2 * 32 * 32 * 128 / (4 * H200.flops_per_s))
    assert (fixed, new) == (0.0, 0.0)


def test_every_rank_reads_a_latent_or_multiplies_it() -> None:
    """Two ranks read it twice; with few heads reading takes longer, with many the products."""
    few, many = replace(LATENT, heads=4), replace(LATENT, heads=512)
    bytes_s = LATENT.kv_bytes_per_token / H200.memory_bandwidth_bytes_per_s
    assert rates(few)[0] == rates(few, 2)[0] == pytest.approx(bytes_s)
    assert rates(many)[0] == pytest.approx(2 * 32 * 512 * (2 * 512 + 64) / H200.flops_per_s)
    assert LATENT.kv_bytes_per_token == 32 * (512 + 64) * 2


def test_sparse_attention_reads_keys_of_all_and_latents_of_the_chosen() -> None:
    index = SparseIndex(64, 128, 2048)
    assert LATENT.latent is not None
    sparse = replace(LATENT, latent=replace(LATENT.latent, index=index))
    bandwidth = H200.memory_bandwidth_bytes_per_s
    assert rates(sparse)[0] == pytest.approx(32 * (128 + 4) / bandwidth)
    assert rates(sparse)[1] == pytest.approx(32 * 576 * 2 * 2048 / bandwidth)
    assert rates(sparse)[2] < rates(LATENT)[2] and rates(sparse)[3] > 0.0


def test_windows_and_states_are_read_whatever_the_context() -> None:
    half = replace(DENSE, layer_types=("sliding", "full") * 16, window_tokens=1024)
    assert half.kv_bytes_per_token * 2 == DENSE.kv_bytes_per_token
    assert half.kv_bytes_per_sequence == 1024 * half.kv_bytes_per_token
    assert rates(half)[1] == pytest.approx(half.kv_bytes_per_sequence / H200.memory_bandwidth_bytes_per_s)
    linear = LinearAttention(key_heads=16, value_heads=32, key_dim=128, value_dim=128, conv_width=4)
    states = replace(DENSE, layer_types=("linear", "linear", "linear", "full") * 8, linear=linear)
    assert states.kv_bytes_per_token * 4 == DENSE.kv_bytes_per_token
    assert rates(states, 16)[1] == pytest.approx(rates(states)[1] / 16), "split over heads, 8 KV heads or not"
    assert states.kv_bytes_per_sequence == 24 * 2 * (32 * 128 * 128 + 3 * (2 * 16 + 32) * 128)


def test_a_window_longer_than_most_contexts_counts_as_the_whole_context() -> None:
    chunked = replace(DENSE, layer_types=("sliding", "full") * 16, window_tokens=8192)
    assert (chunked.kv_bytes_per_token, chunked.kv_bytes_per_sequence) == (DENSE.kv_bytes_per_token, 0)


@given(tokens=st.integers(1, 4096), more=st.integers(0, 4096), tp=st.sampled_from([1, 2, 4]))
def test_more_tokens_never_take_a_mixture_less_time(tokens: int, more: int, tp: int) -> None:
    times = experts(Parallelism(tp)).times(MIXTURE, Parallelism(tp))
    assert times.seconds(tokens) <= times.seconds(tokens + more)


def test_one_token_reads_the_experts_that_it_chose_and_many_tokens_all() -> None:
    """Bytes of 4 of 64 experts in 30 layers of 32; at 2,000 tokens all are read, at 8,000 products decide."""
    one_s = 30 * 3 * 4096 * 1024 * 2 / H200.memory_bandwidth_bytes_per_s
    times = experts(Parallelism(1)).times(MIXTURE, Parallelism(1))
    assert times.seconds(1) == pytest.approx(4 * one_s)
    assert times.seconds(300) == pytest.approx(64 * one_s, rel=1e-4)
    assert times.seconds(8000) == pytest.approx(8000 * 2 * 4 * 30 * 3 * 4096 * 1024 / H200.flops_per_s)


def test_engines_in_data_parallel_exchange_by_all_reduce_and_share_experts() -> None:
    two = experts(Parallelism(1, 2, True)).times(MIXTURE, Parallelism(1, 2, True))
    alone = experts(Parallelism(1)).times(MIXTURE, Parallelism(1))
    assert two.experts_s[256] < alone.seconds(256) < two.experts_s[256] * 2
    assert 0.0 < two.moved_s[1] < two.moved_s[4096]


def test_a_latent_without_measurements_runs_and_its_heads_divide() -> None:
    shape = replace(LATENT, name="latent", experts=MIXTURE.experts)
    model = step_model("roofline", H200, shape, tp=8)
    assert model.dense_s(0, 0, 8) > 0.0 and model.prefill_attention_s(512, 0) > model.prefill_attention_s(
        256, 0
    )


def experts(parallelism: Parallelism) -> SharedExperts:
    return roofline_experts(
        H200,
        MIXTURE,
        parallelism,
        compute=1.0,
        memory=1.0,
        all_reduce=load_all_reduce("h200"),
        last_tokens=8192,
    )
