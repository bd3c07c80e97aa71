"""A mistyped or foreign key is answered with the key that is meant, or with none: of no other subject."""

import re

import pytest

from servetwin.config.compose.compose import load_config
from servetwin.config.config import RunConfig
from servetwin.config.options import option_groups
from servetwin.config.overrides import leaves
from servetwin.config.unknown_key import near_keys
from serving.vocabulary.errors import UserError

DRAWN = ["trace=gamma", "out=none"]
# A word -> the words that it is answered with; "" if nothing is meant.
FOREIGN = {
    "output=x": "out=VALUE",
    "outdir=x": "out=VALUE",
    "output_dir=x": "out=VALUE",
    "random_seed=3": "seed=3",
    "cluster.num_gpus=8": "cluster=GPU_xN",
    "num_gpus=8": "cluster=GPU_xN",
    "cluster.gpu_type=h100": "cluster=GPU_xN",
    "cluster.hosts=2": "cluster=GPU_xN",
    "model.tensor_parallel=4": "model.tp=VALUE",
    "tensor_parallel_size=4": "model.tp=4",
    "tp=4": "model.tp=4",
    "engine.gpu_mem_util=0.8": "engine.gpu_memory_utilization=VALUE",
    "slo.tbt_ms=50": "slo.tpot_ms=VALUE",
    "slo.itl_ms=50": "slo.tpot_ms=VALUE",
    "qps=5": "trace.rate_per_s=VALUE",
    "rps=5": "trace.rate_per_s=VALUE",
    "request_rate=5": "trace.rate_per_s=VALUE",
    "num_prompts=9": "trace.requests=VALUE",
    "faults.time=10": "faults.at_s=VALUE",
    "trace.prompt_tokens=512": "trace.lengths=NAME",
    "engine.dtyp=bfloat16": "--dtype of vllm serve 0.19.0 is not modelled",
    "engine.quantization=fp8": "model.precision=fp8",
    "engine.max_batch_size=64": "engine.max_num_seqs=VALUE",
    "max_concurrency=8": "trace.clients=VALUE",
    "dataset_path=x.csv": "trace=file trace.path=VALUE",
    "router=round_robin": "system/dispatch=VALUE",
    "autoscaling=true": "system/scaler=VALUE",
    "min_replicas=1": "system.instances.both_min=VALUE",
    "context_length=8k": "engine.max_model_len=8000",
    "kv_cache_dtype=fp8": "engine.kv_cache_dtype=fp8",
    "vllm.enforce_eager=true": "engine.overhead.cuda_graphs=false",
    "engine.enable_prefix_caching=false": "engine.prefix_caching=false",
    "gpu=h100": "cluster=GPU_xN",
    "engine.kv_blocks=9": "engine.kv_tokens=VALUE (blocks x engine.block_tokens)",
    "engine.num_gpu_blocks=9": "engine.kv_tokens=VALUE (blocks x engine.block_tokens)",
    "vllm_version=0.30": "engine.version=VALUE",
    "engine.api_servers=4": "engine.front_end.api_server_count=VALUE",
    "trace.speed=2": "trace.rate_scale=VALUE",
    "slo.ttft_p99_ms=200": "servetwin plan has slo.ttft_p99_ms",
    "model.speculative_algorithm=EAGLE": "--speculative-algorithm of SGLang's server 0.5.10 is not modelled",
}
MISTYPED = {
    "engine.max_num_seq=64": "engine.max_num_seqs=VALUE",
    "engine.max_model_length=9": "engine.max_model_len=VALUE",
    "engine.kv_token=9": "engine.kv_tokens=VALUE",
    "engine.blok_tokens=9": "engine.block_tokens=VALUE",
    "engine.pre_emption=swap": "engine.preemption=VALUE",
    "engine.overhead.steps_s=0": "engine.overhead.step_s=VALUE",
    "engine.per_layer_s=0": "engine.overhead.per_layer_s=VALUE",
    "engin.kv_tokens=9": "engine.kv_tokens=VALUE",
    "engines.kv_tokens=9": "engine.kv_tokens=VALUE",
    "slo.ttft=500": "slo.ttft_ms=VALUE",
    "slo.tpt_ms=50": "slo.tpot_ms=VALUE",
    "trace.request=9": "trace.requests=VALUE",
    "trace.gapcv=2": "trace.gap_cv=VALUE",
    "trace.utilisation=0.5": "trace.utilization=VALUE",
    "trace.windows_s=9": "trace.window_s=VALUE",
    "cluster.pci_gbps=9": "cluster.pcie_gbps=VALUE",
    "cluster.nvlink_gbs=9": "cluster.nvlink_gbps=VALUE",
    "system.instance.both_max=9": "system.instances.both_max=VALUE",
    "system.instances.monitor_perod_ms=9": "system.instances.monitor_period_ms=VALUE",
    "system/dispach=round_robin": "system/dispatch=VALUE",
    "system.dispach=round_robin": "system/dispatch=VALUE",
    "migration.max_stage=9": "migration.max_stages=VALUE",
    "faults.duration=9": "faults.duration_s=VALUE",
    "faults.hots=9": "faults.host=VALUE",
    "fault.at_s=9": "faults.at_s=VALUE",
    "pipelin.timeout_s=9": "pipeline.timeout_s=VALUE",
    "sede=3": "seed=VALUE",
    "overwrit=true": "overwrite=VALUE",
    "jornal=true": "journal=VALUE",
    "clustr=h100_x8": "cluster=VALUE",
    "systm=vllm": "system=VALUE",
    "max_model_lenght=9": "engine.max_model_len=VALUE",
    "system.stages.key_marign=0.1": "system.stages.key_margin",
    "system.scaler.scale_down=9": "system.scaler.scale_down_ms",
    "engine.quantisation=fp8": "model.precision=VALUE",
}
# Words like a key of another subject, and words like none.
OF_NOTHING = (
    "cluster.bandwidth=9", "engine.times=9", "model.size=8b", "slo.p99=500", "timeout=10",
    "verbose=true", "migration.threshhold=3", "trace.cuda_graphs=true", "cluster.stages=2", "model.weather=1",
    "scheduler=x", "pipeline.utilization=0.5", "seed.count=3",
)  # fmt: skip


def told(word: str) -> str:
    with pytest.raises(UserError) as refused:
        load_config([*DRAWN, word], "simulate")
    return str(refused.value)


@pytest.mark.parametrize("word", [*FOREIGN, *MISTYPED])
def test_the_key_that_is_meant(word: str) -> None:
    expected = (FOREIGN | MISTYPED)[word]
    sentence = told(word)
    assert f"write {expected}" in sentence or f": {expected}" in sentence or expected in sentence
    assert sentence.count("=VALUE") <= 1, "one key is meant"


@pytest.mark.parametrize("word", OF_NOTHING)
def test_no_key_where_none_is_meant(word: str) -> None:
    sentence = told(word)
    assert "is meant" not in sentence and "not modelled" not in sentence
    assert "write a key" in sentence or "write one of" in sentence


def subject(key: str) -> str:
    first, *below = re.split(r"[./]", key)
    return f"{first}.{below[0]}" if first == "system" and len(below) > 1 else first


def test_a_typing_error_is_answered_within_its_subject() -> None:
    known = [*leaves(RunConfig), *option_groups(), "trace.rate_per_s", "trace.requests"]
    for key in known:
        parts = re.split(r"[./]", key)
        if len(parts) == 1 or len(parts[-1]) < 4 or parts[-1] in ("name", "policy", "source"):
            continue
        for at in range(len(parts[-1])):
            typed = key[: len(key) - len(parts[-1]) + at] + key[len(key) - len(parts[-1]) + at + 1 :]
            if typed in known:
                continue
            near = near_keys(typed, known)
            assert {subject(name) for name in near} <= {subject(key)}, (typed, near)


def test_a_recorded_trace_is_scaled_and_cut() -> None:
    for word, expected in (("qps=5", "trace.rate_scale=FACTOR"), ("num_prompts=9", "trace.limit=VALUE")):
        with pytest.raises(UserError, match=re.escape(expected)):
            load_config([word, "trace=azure_conv", "out=none"], "simulate")
