"""Runs whose servers' command lines are printed: each differs from the plain one in other flags."""

from typing import Final

PLAIN: Final = ("cluster=h100_x4", "model=llama3_8b", "engine=vllm_v1")
LINKED: Final = ("cluster=blitz_a_1x8", "model=llama3_8b", "engine=vllm_v1")
VARIANTS: Final = (
    (),
    ("model.tp=2", "engine.max_num_seqs=64", "engine.max_num_batched_tokens=4096"),
    ("model.pp=2",),
    ("engine.max_model_len=2048", "engine.gpu_memory_utilization=0.85"),
    ("engine.kv_cache_dtype=fp8", "engine.step_time=roofline"),
    ("engine.kv_cache_dtype=bf16",),
    ("engine.prefix_caching=false", "engine.asynchronous=false"),
    ("engine.block_tokens=32",),
    ("engine.kv_tokens=32000",),
    ("engine.overhead.cuda_graphs=false", "system.instances.scheduling_policy=priority"),
)
