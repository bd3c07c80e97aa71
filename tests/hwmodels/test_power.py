"""What GPUs draw: the measured points, between and beyond them, and that energy is the sum of its parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.catalogue import gpu_names, gpu_power
from hwmodels.gpus.power import DECODE_SHARES, GpuPower, decode_share, energy_j

H100 = GpuPower(limit_w=700, idle_w=124)
SECONDS = st.floats(0, 1e6)


@pytest.mark.parametrize(("batch", "watts"), [(1, 300), (128, 600), (511, 688)])
def test_the_measured_points_are_met(batch: int, watts: int) -> None:
    assert H100.limit_w * decode_share(batch) == pytest.approx(watts)
    assert energy_j(H100, 0, 10, batch, 0) == pytest.approx(10 * watts)


@given(st.floats(0.5, 4096), st.floats(0.5, 4096))
def test_larger_batches_never_draw_less(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert DECODE_SHARES[0][1] <= decode_share(low) <= decode_share(high) <= DECODE_SHARES[-1][1]


@given(SECONDS, SECONDS, SECONDS, st.floats(1, 512))
def test_power_lies_between_idle_and_the_limit(
    prompt_s: float, decode_s: float, idle_s: float, batch: float
) -> None:
    held_s = prompt_s + decode_s + idle_s
    found = energy_j(H100, prompt_s, decode_s, batch, idle_s)
    assert H100.idle_w * held_s <= found * (1 + 1e-9)
    assert found <= H100.limit_w * held_s * (1 + 1e-9)


def test_every_gpu_draws_less_with_nothing_to_do() -> None:
    known = {name: gpu_power(name) for name in gpu_names()}
    assert [name for name, power in known.items() if power is None] == ["cpu_core"]
    for power in known.values():
        assert power is None or 0 < power.idle_w < 0.43 * power.limit_w
