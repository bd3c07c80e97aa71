"""Worlds of data-parallel groups in which things are lost, drawn from one seed (``tests.worlds.faulted``)."""

from pathlib import Path
from random import Random

from tests.worlds.toy_mixture import SMALL, mixture_profile

SYSTEMS = ("vllm", "vllm system.instances.queue=per_instance", "vllm system/dispatch=round_robin")
TRACES = ("trace=azure_code_like", "trace=azure_conv_like", "trace=gamma")
CLUSTERS = ("blitz_b_2x4", "blitz_b_4x2", "blitz_b_1x4")


def group_words(seed: int, folder: Path) -> list[str]:
    """The words of a run, without its losses; its profile is written into ``folder``."""
    profile = mixture_file(folder)
    random = Random(f"faulted group world {seed}")
    ranks = random.choice([2, 2, 4])
    words = f"system={random.choice(SYSTEMS)} {random.choice(TRACES)} cluster={random.choice(CLUSTERS)}"
    words += f" trace.rate_per_s={random.choice([20, 100, 300])} trace.tokens_scale=0.015"
    words += f" trace.requests={random.choice([20, 60, 120])} seed={random.randrange(1000)}"
    words += f" engine.data_parallel_size={ranks} engine.asynchronous={random.choice(['true', 'false'])}"
    words += f" engine.profile={profile} engine.profile_force=true engine.enable_expert_parallel=false"
    taken = {word.partition("=")[0] for word in words.split()}
    return [*(word for word in SMALL if word.partition("=")[0] not in taken), *words.split()]


def mixture_file(folder: Path) -> Path:
    """A profile of a mixture of experts, which is written if it is not there."""
    profile = folder / "mixture.json"
    if not profile.exists():
        mixture_profile(profile, gpu="a100_80g")
    return profile
