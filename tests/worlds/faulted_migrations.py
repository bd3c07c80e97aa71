"""Worlds of Llumnix in which things are lost, drawn from one seed (``tests.worlds.faulted``)."""

from random import Random

SYSTEMS = (
    "llumnix", "llumnix", "llumnix_base", "infaas_pp system.instances.scheduling_policy=priority",
    "llumnix_base system/migration=least_loaded", "llumnix_base_autoscaled system.instances.both=3",
    "llumnix_base_autoscaled system.instances.both=2 system.migration.rule=paper system.scaler.rule=paper",
    "llumnix_base_autoscaled system.instances.both=4 system/provision=multicast",
    "infaas_pp_autoscaled system.instances.both=3", "llumnix_autoscaled system.instances.both=3",
    "round_robin_autoscaled system.instances.both=2",
)  # fmt: skip


def migration_words(seed: int) -> list[str]:
    """The words of a run, without its losses: memory is short, some have a high priority."""
    random = Random(f"faulted migration world {seed}")
    system, lengths = random.choice(SYSTEMS), random.choice(("mm", "ss", "ll"))
    words = f"system={system} model=llama_7b cluster=llumnix trace=llumnix_{lengths}"
    words += f" engine={random.choice(['vllm_0_1_7', 'vllm_0_2_0', 'vllm_v1'])}"
    words += " engine.max_num_batched_tokens=12800 engine.max_model_len=12800 engine.max_new_tokens=6144"
    words += f" trace.rate_per_s={random.choice([2, 8, 30])} trace.requests={random.choice([20, 60, 120])}"
    words += f" trace.high_priority_share={random.choice([0, 0.1, 0.5])} seed={random.randrange(1000)}"
    if not any(word in system for word in ("least_loaded", "infaas", "round_robin")):
        words += f" system.migration.migrate_out_threshold={random.choice([3, 10, 100])}"
    return words.split()
