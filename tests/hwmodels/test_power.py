"""What GPUs draw: the measured points, the limits, and that energy is the sum of its parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.catalogue import gpu_names, gpu_power, load_gpu, load_llm
from hwmodels.gpus.power import MOST_SHARE, GpuPower, decode_w, energy_j
from hwmodels.models.decode_work import flops_per_token, weight_bytes_read

H100 = GpuPower(limit_w=700, idle_w=124)
SECONDS = st.floats(0, 1e6)
SHARES = st.floats(0, 1)
PROMPT, OUTPUT = 634, 717
PROMPT_TOKENS_PER_S = 39_000  # 59 % of an H100's rate


@pytest.mark.parametrize(
    ("batch", "tokens_per_s", "watts"),
    [(16, 1954, 513), (32, 3391, 560), (64, 5147, 610), (96, 6260, 644), (128, 7037, 669), (512, 9806, 688)],
)
def test_the_measured_points_of_llama_are_met(batch: int, tokens_per_s: float, watts: float) -> None:
    llm, gpu = load_llm("llama3_1_8b"), load_gpu("h100")
    prompts = tokens_per_s * PROMPT / OUTPUT / PROMPT_TOKENS_PER_S
    context = PROMPT + OUTPUT / 2
    read = weight_bytes_read(llm, batch) / batch + llm.kv_bytes_per_token * context
    rate = tokens_per_s / (1 - prompts)
    shares = (
        rate * read / gpu.memory_bandwidth_bytes_per_s,
        rate * flops_per_token(llm, context) / gpu.flops_per_s,
    )
    found = energy_j(H100, prompts, 1 - prompts, decode_w(H100, *shares), 0)
    assert found == pytest.approx(watts, rel=0.02)


@given(SHARES, SHARES, SHARES, SHARES)
def test_more_work_never_draws_less(memory: float, more: float, tensor: float, harder: float) -> None:
    low, high = sorted((memory, more))
    few, many = sorted((tensor, harder))
    least = decode_w(H100, low, few)
    assert H100.idle_w <= least <= decode_w(H100, high, many) <= MOST_SHARE * H100.limit_w


@given(SECONDS, SECONDS, SECONDS, SHARES, SHARES)
def test_power_lies_between_idle_and_the_limit(
    prompt_s: float, decode_s: float, idle_s: float, memory: float, tensor: float
) -> None:
    held_s = prompt_s + decode_s + idle_s
    found = energy_j(H100, prompt_s, decode_s, decode_w(H100, memory, tensor), idle_s)
    assert H100.idle_w * held_s <= found * (1 + 1e-9)
    assert found <= H100.limit_w * held_s * (1 + 1e-9)


def test_every_gpu_draws_less_with_nothing_to_do() -> None:
    known = {name: gpu_power(name) for name in gpu_names()}
    assert [name for name, power in known.items() if power is None] == ["cpu_core"]
    for power in known.values():
        assert power is None or 0 < power.idle_w < 0.43 * power.limit_w


def test_few_tokens_leave_experts_unread() -> None:
    mixture = load_llm("qwen3_30b_a3b")
    assert mixture.experts is not None
    unread = mixture.expert_bytes * (1 - mixture.experts.per_token / mixture.experts.count)
    whole = weight_bytes_read(mixture, 10_000)
    assert weight_bytes_read(mixture, 1) == pytest.approx(whole - unread)
    # A token uses what a step of one token reads.
    assert flops_per_token(mixture, 0) == pytest.approx(weight_bytes_read(mixture, 1), rel=0.02)
