"""The command that starts a server as a run's instances are: ``vllm serve``, or SGLang's launch_server.

What each flag means here is ``servetwin/config/server_flags.csv``; this is the way back, from keys to flags.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from hwmodels.catalogue import load_llm, published_names, quantised_publication
from hwmodels.catalogue.names import is_hub_name
from hwmodels.models.precision import quantised
from servetwin.config.config import RunConfig

VLLM, SGLANG = "vllm", "sglang"
PORT: Final = 8000
ANY_MODEL: Final = "MODEL"
# The connector between vLLM servers that prefill and servers that decode (docs/how-to/HTTP.md).
_NIXL: Final = json.dumps({"kv_connector": "NixlConnector", "kv_role": "kv_both"}, separators=(",", ":"))
_BLOCK_TOKENS: Final = 16  # vLLM's default on GPUs
_OLDEST_SERVE: Final = (0, 6)  # vLLM 0.6 has ``vllm serve`` and these flags
# Formats that vLLM and SGLang make of 16-bit weights while they load them.
_MADE_BY_ENGINES: Final = ("fp8",)


@dataclass(frozen=True, slots=True)
class ServeCommand:
    """``words`` of the command. ``settings``: of the environment. ``remarks``: what is left to the reader."""

    words: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)


def why_no_command(config: RunConfig) -> str:
    """Return why no server is started as this engine is; "" if one is."""
    engine = config.engine
    if config.models.name != "one" or config.system.in_stages:
        return "its instances have several models or stages, and one server has one model"
    if engine.software == SGLANG:
        return ""
    if engine.software == VLLM and _version(engine.version) >= _OLDEST_SERVE:
        return ""
    return (
        f"engine={engine.name} imitates {engine.software} {engine.version}, which neither vllm serve nor "
        "sglang.launch_server starts: plan with engine=vllm_v1"
    )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())


def serve_command(config: RunConfig, role: str, tp: int, words: Sequence[str] = ()) -> ServeCommand:
    """Return the command of an instance of ``role`` on ``tp`` GPUs for each stage.

    ``words``: the words of the run, whose ``model=`` may name the model as Hugging Face does.
    """
    model, quantization, remarks = _model(config, words)
    made = _vllm if config.engine.software == VLLM else _sglang
    flags = [*made(config, role, tp), *_flag("--quantization", quantization), *_flag("--port", PORT)]
    start = ["vllm", "serve", model]
    if config.engine.software == SGLANG:
        start = ["python", "-m", "sglang.launch_server", "--model-path", model]
    return ServeCommand((*start, *flags), (*remarks, *_left_out(config)), _settings(config))


def _model(config: RunConfig, words: Sequence[str]) -> tuple[str, str | None, list[str]]:
    """Return the model's name, the value of --quantization, and a remark if the name is to be replaced."""
    name, precision = config.model.name, config.model.precision
    given = next((word.removeprefix("model=") for word in words if word.startswith("model=")), "")
    of_publication = quantised_publication(given)
    if is_hub_name(given) and (of_publication[1] if of_publication else None) == precision:
        return given, None, []
    shape = load_llm(name)
    if precision is not None and quantised(precision, shape.bytes_per_parameter) == shape.formats:
        precision = None
    if known := published_names(name, precision):
        return known[0], None, []
    if precision in _MADE_BY_ENGINES and (known := published_names(name, None)):
        return known[0], precision, []
    stored = f" with {precision} parameters" if precision else ""
    return ANY_MODEL, None, [f"{ANY_MODEL}: a checkpoint of {name}{stored}; the catalogue names none"]


def _flag(name: str, value: object) -> list[str]:
    return [] if value is None else [name, f"{value:g}" if isinstance(value, float) else str(value)]


def _longest(config: RunConfig) -> int:
    return config.engine.max_model_len or load_llm(config.model.name).max_context_tokens


def _vllm(config: RunConfig, role: str, tp: int) -> Iterator[str]:
    engine, model = config.engine, config.model
    yield from _flag("--tensor-parallel-size", tp)
    yield from _flag("--pipeline-parallel-size", model.pp if model.pp > 1 else None)
    if engine.data_parallel_size > 1:
        yield from _flag("--data-parallel-size", engine.data_parallel_size)
    if engine.enable_expert_parallel:
        yield "--enable-expert-parallel"
    yield from _flag("--max-model-len", _longest(config))
    yield from _flag("--max-num-seqs", engine.max_num_seqs)
    yield from _flag("--max-num-batched-tokens", engine.max_num_batched_tokens)
    yield from _flag("--gpu-memory-utilization", engine.gpu_memory_utilization)
    yield from _flag("--block-size", engine.block_tokens if engine.block_tokens != _BLOCK_TOKENS else None)
    yield from _flag("--kv-cache-dtype", None if engine.kv_cache_dtype == "auto" else _kv_vllm(config))
    if engine.kv_tokens is not None:
        yield from _flag("--num-gpu-blocks-override", engine.kv_tokens // engine.block_tokens)
    yield "--enable-prefix-caching" if engine.prefix_caching else "--no-enable-prefix-caching"
    if engine.name == "vllm_v1":
        yield "--async-scheduling" if engine.asynchronous else "--no-async-scheduling"
    if not engine.overhead.cuda_graphs:
        yield "--enforce-eager"
    if config.system.instances.scheduling_policy != "fcfs":
        yield from _flag("--scheduling-policy", config.system.instances.scheduling_policy)
    if engine.front_end.api_server_count > 1:
        yield from _flag("--api-server-count", engine.front_end.api_server_count)
    if role != "both":
        yield from _flag("--kv-transfer-config", _NIXL)


def _kv_vllm(config: RunConfig) -> str:
    return {"bf16": "bfloat16"}.get(config.engine.kv_cache_dtype, config.engine.kv_cache_dtype)


def _sglang(config: RunConfig, role: str, tp: int) -> Iterator[str]:
    engine, model = config.engine, config.model
    yield from _flag("--tensor-parallel-size", tp * engine.data_parallel_size)
    yield from _flag("--pipeline-parallel-size", model.pp if model.pp > 1 else None)
    if engine.data_parallel_size > 1:
        yield from _flag("--data-parallel-size", engine.data_parallel_size)
        yield "--enable-dp-attention"
    if engine.enable_expert_parallel:
        yield from _flag("--expert-parallel-size", tp * engine.data_parallel_size)
    yield from _flag("--context-length", _longest(config))
    yield from _flag("--max-running-requests", engine.max_num_seqs)
    yield from _flag("--chunked-prefill-size", engine.max_num_batched_tokens)
    yield from _flag("--mem-fraction-static", engine.gpu_memory_utilization)
    yield from _flag("--page-size", engine.block_tokens)
    yield from _flag("--kv-cache-dtype", _kv_sglang(config))
    yield from _flag("--max-total-tokens", engine.kv_tokens)
    if not engine.prefix_caching:
        yield "--disable-radix-cache"
    if not engine.overhead.cuda_graphs:
        yield "--disable-cuda-graph"
    if not engine.asynchronous:
        yield "--disable-overlap-schedule"
    if config.system.instances.scheduling_policy == "priority":
        yield "--enable-priority-scheduling"
    if role != "both":
        yield from _flag("--disaggregation-mode", role)
    yield from ("--enable-metrics", "--host", "0.0.0.0")


def _kv_sglang(config: RunConfig) -> str | None:
    return {"auto": None, "bf16": "bfloat16", "fp8": "fp8_e4m3"}[config.engine.kv_cache_dtype]


def _settings(config: RunConfig) -> dict[str, str]:
    """Return the layers of each stage, where they are written one by one."""
    if config.model.pp > 1 and "+" in config.model.pp_cut and config.engine.software == VLLM:
        return {"VLLM_PP_LAYER_PARTITION": config.model.pp_cut.replace("+", ",")}
    return {}


def _left_out(config: RunConfig) -> Iterator[str]:
    """Yield what the run has and no flag says."""
    engine, model = config.engine, config.model
    if not engine.reserve_full_prompt and engine.software == VLLM:
        yield "engine.reserve_full_prompt=false: --no-scheduler-reserve-full-isl, if this vLLM has the flag"
    if model.pp > 1 and model.pp_cut in ("bytes", "time"):
        yield f"model.pp_cut={model.pp_cut}: set VLLM_PP_LAYER_PARTITION to the layers of each stage"
    if engine.reserve_activation_bytes is not None:
        yield "engine.reserve_activation_bytes: the engine measures what activations take by itself"
    if engine.software == SGLANG:
        yield (
            "--mem-fraction-static counts weights and KV alone: lower it if activations find no room beside"
        )
    if config.system.batcher.name not in ("engine_default", engine.batcher):
        yield f"system/batcher={config.system.batcher.name}: the engine has its own"
