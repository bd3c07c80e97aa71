"""A made-up profile of a mixture of experts, with tables for one engine and for groups of two."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from hwmodels.profiles.profile import Curve, Exchange, ExpertTable, Lattice
from hwmodels.profiles.profile_file import save_profile
from tests.worlds.toy_profile import STAMP, toy_profile

TOKENS, EXPERTS = (1, 2, 4, 8, 16, 64, 1024), (8, 16, 32, 64, 128)
CURVE = Curve((1, 1024), (30e-6, 130e-6))
SMALL = (
    "model=qwen3_30b_a3b", "model.tp=1", "trace=azure_conv_like", "trace.requests=40", "trace.rate_per_s=60",
    "trace.tokens_scale=0.02", "engine.max_num_seqs=8", "engine.max_num_batched_tokens=64",
    "engine.kv_tokens=4096", "uncertainty=off",
)  # fmt: skip
GROUP = ("engine.data_parallel_size=2", "engine.enable_expert_parallel=true")


def mixture_profile(path: Path, gpu: str = "rtx_pro_6000") -> Path:
    """Reading an expert takes 6 us, a token 1 us and starting 20 us; half of the experts take half of it."""
    microseconds = [[20 + 6 * a + n if a <= 8 * n else np.nan for a in EXPERTS] for n in TOKENS]
    whole = Lattice((TOKENS, EXPERTS), np.array(microseconds) * 1e-6)
    half = Lattice((TOKENS, tuple(a // 2 for a in EXPERTS)), whole.values / 2)
    tables = toy_profile(
        skew=None,
        experts=(
            ExpertTable(1, 1, whole),
            ExpertTable(1, 2, half),
            ExpertTable(2, 1, whole),
            ExpertTable(4, 1, whole),
        ),
        exchange=tuple(Exchange(ranks, CURVE, "made up") for ranks in (2, 4)),
    )
    stamp = replace(STAMP, gpu=gpu, llm="qwen3_30b_a3b", engine="vllm", engine_version="0.19.0")
    save_profile(replace(tables, stamp=stamp), path)
    return path
