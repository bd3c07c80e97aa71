"""Words that people write for keys: other tools' names, plain words, and names without their unit."""

from collections.abc import Mapping, Sequence
from typing import Final

from servetwin.config.key import declared_keys

_CLUSTER: Final = "cluster=GPU_xN (cluster=h100_x8: eight H100s)"
_RATE: Final = ("trace.rate_per_s=VALUE",)
_LENGTHS: Final = "trace.lengths=NAME (docs/reference/TRACES.md lists the lengths of drawn traces)"

# The words to write -> the names that people give them, without their group.
_NAMES: Final[Mapping[str, str]] = {
    "out=VALUE": "output outdir output_dir out_dir output_folder output_path result_dir results_dir "
    "result_folder results save_dir",
    "seed=VALUE": "rng_seed seeds random_state",
    _CLUSTER: "gpu num_gpus n_gpus ngpus gpu_count gpus num_nodes nodes hosts num_hosts n_hosts gpu_type "
    "gpu_name gpu_model gpus_per_node num_devices hardware accelerator machines servers",
    "cluster=GPU_xN (its GPUs over model.tp x model.pp are the replicas)": "replicas num_replicas n_replicas "
    "num_instances instances num_engines",
    "model.tp=VALUE": "tensor_parallel tensor_parallelism tensor_parallel_degree tp_degree",
    "model.pp=VALUE": "pipeline_parallel pipeline_parallelism pipeline_parallel_degree pp_degree",
    "engine.data_parallel_size=VALUE": "data_parallel data_parallelism dp_degree",
    "engine.enable_expert_parallel=true": "expert_parallel expert_parallelism",
    "model=VALUE": "model_name model_id",
    "cluster=FILE.yaml": "gpu_file cluster_file hardware_file topology_file",
    "engine.gpu_memory_utilization=VALUE": "gpu_mem_util gpu_memory_util gpu_mem_utilization mem_util "
    "memory_utilization gpu_utilization gpu_util gpu_mem mem_fraction gpu_memory_fraction",
    "engine.max_num_seqs=VALUE": "max_batch_size batch_size max_batch max_seqs max_running num_seqs max_bs",
    "engine.max_num_batched_tokens=VALUE": "chunk_size prefill_chunk_size max_batched_tokens token_budget "
    "max_batch_tokens",
    "engine.max_model_len=VALUE": "max_seq_len max_context_len max_context_length context_len "
    "context_window max_length max_context",
    "engine.max_new_tokens=VALUE": "max_tokens max_output_tokens max_completion_tokens",
    "engine.prefix_caching=VALUE": "prefix_cache enable_prefix_cache radix_cache apc",
    "engine.block_tokens=VALUE": "blocksize kv_block_size tokens_per_block",
    "engine.kv_tokens=VALUE (blocks x engine.block_tokens)": "num_gpu_blocks kv_blocks num_kv_blocks "
    "gpu_blocks",
    "engine.version=VALUE": "vllm_version engine_version",
    "engine.front_end.api_server_count=VALUE": "api_servers num_api_servers api_workers",
    "engine.swap_space_gib=VALUE": "swap_space swap_size cpu_swap_space",
    "engine.overhead.cuda_graphs=VALUE": "cuda_graph cudagraph use_cuda_graph",
    "system/batcher=chunked_prefill": "chunked_prefill",
    "slo.tpot_ms=VALUE": "tbt_ms tbt itl_ms itl tpot time_between_tokens inter_token_latency "
    "inter_token_latency_ms time_per_output_token tbt_slo tpot_slo token_latency_ms",
    "slo.ttft_ms=VALUE": "ttft time_to_first_token first_token_ms ttft_slo time_to_first_token_ms",
    "trace=VALUE": "dataset dataset_name workload",
    "trace=file trace.path=VALUE": "dataset_path trace_file trace_path workload_file",
    "trace.clients=VALUE": "concurrency max_concurrency num_clients num_users users request_concurrency",
    "trace.gap_cv=VALUE": "burstiness arrival_cv interarrival_cv",
    _LENGTHS: "input_len output_len prompt_len input_length output_length prompt_length prompt_tokens "
    "output_tokens input_tokens decode_tokens random_input_len random_output_len isl osl",
    "system/dispatch=VALUE": "policy dispatcher router routing routing_policy router_policy load_balancer "
    "load_balancing lb lb_policy",
    "system/scaler=VALUE": "autoscaler autoscaling autoscale scaling scaling_policy",
    "system/admission=VALUE": "admission_control rate_limit",
    "system.instances.both_min=VALUE": "min_replicas min_instances min_engines",
    "system.instances.both_max=VALUE": "max_replicas max_instances max_engines",
    "system.instances.split=true": "disaggregated disaggregation pd_disaggregation prefill_decode_split",
    "faults.at_s=VALUE": "fault_time failure_time",
    "journal=true": "record recording",
}  # fmt: skip
# Groups, besides none, in which the names of the words above that begin so are understood.
_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "out": ("run", "results"),
    "seed": ("trace", "system", "engine", "model", "run"),
    "cluster": ("cluster", "engine", "model", "system", "system.instances"),
    "model": ("engine", "model", "cluster", "system", "system.instances", "parallel"),
    "engine": ("engine", "model", "system", "system.batcher", "cluster", "scheduler"),
    "system": ("system", "system.dispatch", "system.instances", "system.scaler", "cluster"),
    "slo": ("slo", "slos"),
    "trace": ("trace", "workload", "traffic"),
    "faults": ("faults",),
}
# Names with a meaning in one group only.
_IN_GROUP: Final[Mapping[str, str]] = {
    "faults.time": "faults.at_s=VALUE",
    "faults.start_s": "faults.at_s=VALUE",
    "trace.file": "trace=file trace.path=VALUE",
    "trace.cv": "trace.gap_cv=VALUE",
    "trace.speed": "trace.rate_scale=VALUE",
    "trace.speedup": "trace.rate_scale=VALUE",
    "slo.ttft_p99_ms": "slo.ttft_ms=VALUE for each request (servetwin plan has slo.ttft_p99_ms)",
    "slo.p99_ttft_ms": "slo.ttft_ms=VALUE for each request (servetwin plan has slo.ttft_p99_ms)",
    "model.path": "model=VALUE",
    "model.id": "model=VALUE",
    "cluster.type": _CLUSTER,
    "cluster.size": _CLUSTER,
    "engine.chunked_prefill": "system/batcher=chunked_prefill",
    "engine.enable_chunked": "system/batcher=chunked_prefill",
    "engine.scheduler": "system/batcher=VALUE",
    "system.router": "system/dispatch=VALUE",
}
_RATES: Final = ("rate", "request_rate", "rps", "qps", "requests_per_second", "req_per_s", "arrival_rate")
_COUNTS: Final = ("num_prompts", "num_requests", "n_requests", "request_count", "max_requests", "num_prompt")
_RECORDED: Final = "trace.rate_per_s=VALUE (drawn traces) or trace.rate_scale=FACTOR (recorded ones)"


def meant_words(key: str, names: Sequence[str], config_class: type) -> list[str]:
    """Return the words to write for a key that another tool, or plain language, calls so.

    ``names``: the keys that there are. Words whose key is not among them are left out.
    """
    owner, _, last = key.rpartition(".")
    last = last.lower()
    if owner in ("", *_GROUPS["trace"]):
        if last in _RATES:
            return _rates(last, names)
        if last in _COUNTS:
            first = "trace.requests" if "trace.requests" in names else "trace.limit"
            return [f"{first}=VALUE"] if first in names else []
        if words := _declared(last, names, config_class):
            return words
    if key in _IN_GROUP:
        return _there([_IN_GROUP[key]], names)
    named = [words for words, known in _NAMES.items() if last in known.split()]
    return _there([words for words in named if _understood(owner, words)], names)


def _rates(word: str, names: Sequence[str]) -> list[str]:
    drawn = [*_RATE] if "trace.rate_per_s" in names else []
    scaled = ["trace.rate_scale=VALUE"] if word == "rate" and "trace.rate_scale" in names else []
    if scaled or drawn:
        return [*scaled, *drawn]
    return [_RECORDED] if "trace.rate_scale" in names else []


def _declared(word: str, names: Sequence[str], config_class: type) -> list[str]:
    """Return keys that declare the word, and beside them the parameter of a trace that begins with it."""
    paths = [path for path, known in declared_keys(config_class).items() if word in known.key.also]
    beside = [name for name in names if name.startswith(f"trace.{word}_")] if paths else []
    return [f"{path}=VALUE" for path in dict.fromkeys((*beside, *paths)) if path in names]


def _understood(owner: str, words: str) -> bool:
    first = words.partition("=")[0].partition(".")[0].partition("/")[0]
    return owner in ("", *_GROUPS.get(first, ()))


def _there(found: list[str], names: Sequence[str]) -> list[str]:
    """Leave out words whose first key does not exist."""
    return [words for words in found if words.partition("=")[0] in names]
