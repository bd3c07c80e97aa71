"""Published expert tables of Qwen3-30B-A3B and Mixtral: what they become, how far off, and how far apart."""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hwmodels.catalogue import load_llm
from hwmodels.errors import HardwareError
from hwmodels.importers import ImportRequest, import_profile
from hwmodels.importers.tables import read_table
from hwmodels.models.parallelism import Parallelism
from hwmodels.profiles.profile import Profile
from hwmodels.profiles.profile_file import load_profile, save_profile
from hwmodels.step_times.expert_error import POWER_LAW_SKEW
from hwmodels.step_times.expert_times import experts_of
from hwmodels.step_times.held_out import held_out_errors

PROFILES = Path(os.environ.get("SERVETWIN_PROFILES", ""))
OWN = PROFILES / "llmservingsim" / "RTXPRO6000" / "Qwen" / "Qwen3-30B-A3B-Instruct-2507"
OTHER = PROFILES / "aiconfigurator"
pytestmark = pytest.mark.skipif(
    not (PROFILES / "aiconfigurator").is_dir(),
    reason="SERVETWIN_PROFILES does not name the folder of measured tables",
)
FOLDERS = {"rtx_pro_6000": "rtx_pro_6000_server", "h100": "h100_sxm", "h200": "h200_sxm"}
LLM = "qwen3_30b_a3b"


@cache
def composed(gpu: str, tp: int = 1, llm: str = LLM) -> Profile:
    request = ImportRequest(
        path=OTHER / FOLDERS[gpu], gpu=gpu, llm=llm, tp=tp, aiconfigurator=OTHER / "h100_sxm"
    )
    return import_profile("aiconfigurator", request)


@cache
def own(tp: int = 1) -> Profile:
    request = ImportRequest(
        path=OWN, gpu="rtx_pro_6000", llm=LLM, tp=tp, aiconfigurator=OTHER / FOLDERS["rtx_pro_6000"]
    )
    return import_profile("llmservingsim", request)


def by_tokens(profile: Profile, parallelism: Parallelism, skew: float = 0.0) -> np.ndarray:
    return experts_of(profile).times(load_llm(profile.stamp.llm), parallelism, skew).by_tokens()


def test_two_tables_of_the_same_experts_agree() -> None:
    """The block of moe.csv, and AIConfigurator's kernel with a gate composed: different people, one GPU."""
    tokens = np.array([2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048])
    apart = (
        by_tokens(composed("rtx_pro_6000"), Parallelism(1))[tokens] / by_tokens(own(), Parallelism(1))[tokens]
    )
    assert np.abs(apart - 1.0).max() < 0.08
    assert np.abs(apart - 1.0).mean() < 0.03


@pytest.mark.parametrize(
    ("gpu", "tp", "decode", "prefill", "experts"),
    [
        ("rtx_pro_6000", 1, 2.5, 1.5, 4.0),
        ("h100", 1, 3.0, 3.0, 4.0),
        ("h200", 1, 3.0, 3.0, 4.0),
    ],
)
def test_held_out_lines_are_met(gpu: str, tp: int, decode: float, prefill: float, experts: float) -> None:
    profile = own(tp) if gpu == "rtx_pro_6000" else composed(gpu, tp)
    found = {error.phase: error.mean_percent for error in held_out_errors(profile)}
    assert found["decode"] < decode and found["prefill"] < prefill and found["experts"] < experts


@pytest.mark.parametrize(("gpu", "tp"), [("rtx_pro_6000", 2), ("h100", 2)])
def test_more_gpus_make_a_step_faster_and_more_tokens_never_do(gpu: str, tp: int) -> None:
    for expert_parallel in (False, True):
        seconds = by_tokens(composed(gpu, tp), Parallelism(tp, 1, expert_parallel))
        assert (np.diff(seconds) >= 0.0).all()
        if tp > 1:
            fewer = by_tokens(composed(gpu, tp // 2), Parallelism(tp // 2))
            assert (seconds[16:2048] < fewer[16:2048]).all()


def test_a_skewed_popularity_is_faster_with_few_tokens_and_slower_on_the_busiest_gpu() -> None:
    one, shared = Parallelism(1), Parallelism(1, 2, True)
    assert by_tokens(own(), one, 1.0)[16] < 0.8 * by_tokens(own(), one)[16]
    assert by_tokens(own(), shared, 1.0)[2048] > 1.02 * by_tokens(own(), shared)[2048]


def test_power_law_loads_are_met_at_the_skew_that_stands_for_them() -> None:
    """AIConfigurator's kernel under loads drawn from power laws; these rows are read nowhere else."""
    tokens = np.array([4, 8, 16, 32, 48, 64, 80, 96, 128, 192])
    for gpu in ("h100", "rtx_pro_6000"):
        path = OTHER / FOLDERS[gpu] / "moe" / "vllm" / "0.19.0" / "moe_perf.parquet"
        counts = ("num_tokens", "inter_size", "hidden_size", "moe_tp_size", "moe_ep_size")
        table = read_table(path, counts, times=("latency",), words=("moe_dtype", "distribution"))
        rows = table.having(moe_dtype="bfloat16", hidden_size=2048, inter_size=768, moe_tp_size=1)
        one = rows.having(moe_ep_size=1)
        drawn = [one.having(distribution="power_law_1.2", num_tokens=n).times["latency"][0] for n in tokens]
        # What gate and choice take is in the times here alone: as much as they add to balanced loads.
        whole = by_tokens(composed(gpu), Parallelism(1))[2048] / 48 * 1e3
        gate = whole - one.having(distribution="balanced", num_tokens=2048).times["latency"][0]
        assert gate > 0.0
        for skew, lowest, highest in ((POWER_LAW_SKEW, -0.03, 0.03), (0.0, 0.05, 0.12)):
            found = by_tokens(composed(gpu), Parallelism(1), skew)[tokens] / 48 * 1e3
            assert lowest < np.mean(found / (np.array(drawn) + gate) - 1.0) < highest


def test_engines_that_share_experts_say_where_their_exchange_is_from() -> None:
    times = experts_of(own()).times(load_llm(LLM), Parallelism(1, 2, True))
    assert times.labels == (
        "all-gather and reduce-scatter of 2 rtx_pro_6000: NCCL 2.29.2 measured alone, in no engine",
    )
    assert times.max_tokens >= 4096, "two full steps of 2,048 tokens"


def test_experts_on_two_gpus_need_the_other_tables() -> None:
    with pytest.raises(HardwareError, match=r"no expert times .* at tp=2: .*tp2 has no moe.csv"):
        import_profile("llmservingsim", ImportRequest(path=OWN, gpu="rtx_pro_6000", llm=LLM, tp=2))


def test_a_profile_of_a_mixture_is_the_same_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    digest = save_profile(own(), path)
    loaded = load_profile(path)
    assert loaded.digest == digest and not loaded.problems
    assert (
        by_tokens(loaded.profile, Parallelism(1, 2, True)) == by_tokens(own(), Parallelism(1, 2, True))
    ).all()


def test_mixtral_is_composed_and_a_latent_is_refused() -> None:
    seconds = by_tokens(composed("h100", 2, "mixtral_8x7b"), Parallelism(2))
    # 8 experts of 88 MB a layer, all read by 16 tokens: not faster than memory gives them.
    assert seconds[16] > load_llm("mixtral_8x7b").expert_bytes / 2 / 3.35e12
    with pytest.raises(HardwareError, match="multi-head latent attention"):
        composed("h100", 1, "deepseek_v2_lite")
