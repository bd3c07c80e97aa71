"""Measured serving runs in the form of AIConfigurator's table, and the words that simulate them."""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Columns that a file must have; `aic_ttft_ms` and `aic_tpot_ms` may be missing.
COLUMNS: Final = (
    "id", "silicon_data_source", "backend", "backend_version", "model_path", "system", "precision", "isl",
    "osl", "moe_quant_mode", "batch_size", "tp_size", "pp_size", "attention_dp_size", "moe_tp_size",
    "moe_ep_size", "silicon_ttft_ms", "silicon_tpot_ms",
)  # fmt: skip
# Publishers' names of the catalogue's models; the precision is the row's, else what the publisher names.
MODELS: Final = {
    "meta-llama/Llama-3.1-70B": "llama3_1_70b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama3_1_8b",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama3_1_8b",
    "Qwen/Qwen3-32B": "qwen3_32b",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3_235b_a22b",
    "Qwen/Qwen3-30B-A3B": "qwen3_30b_a3b",
    "MiniMaxAI/MiniMax-M2.5": "minimax_m2_5",
    "moonshotai/Kimi-K2.5": "kimi_k2_5",
    "openai/gpt-oss-120b": "gpt_oss_120b",
    "deepseek-ai/DeepSeek-R1": "deepseek_v3",
    "deepseek-ai/DeepSeek-V3": "deepseek_v3",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek_v3",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek_v3",
    "Qwen/Qwen3.5-397B-A17B": "qwen3_5_397b_a17b",
    "zhipuai/GLM-5": "glm_5",
}
GPUS: Final = {"a100_sxm": "a100_80g", "rtx_pro_6000_server": "rtx_pro_6000"}
# Published in blocks of 128x128 (their config.json), whatever a row calls it.
IN_BLOCKS: Final = (
    "Qwen/Qwen3-235B-A22B-FP8", "MiniMaxAI/MiniMax-M2.5", "deepseek-ai/DeepSeek-R1",
    "deepseek-ai/DeepSeek-V3", "Qwen/Qwen3.5-397B-A17B", "zhipuai/GLM-5",
)  # fmt: skip
# Their publications in NVFP4 leave attention in 16 bits.
WIDE_ATTENTION: Final = ("moonshotai/Kimi-K2.5", "nvidia/DeepSeek-R1-NVFP4", "nvidia/DeepSeek-V3.1-NVFP4")
_LATER_ENGINES: Final = "another engine than vLLM: the order on engines"
_LATER_MODELS: Final = "its architecture: the order on models"
_NO_PIPELINES: Final = "pipeline stages: its step times are of whole models"
# Whose experts alone are quantised, and how, by their checkpoints: rows name the width of those.
OF_EXPERTS: Final = {"openai/gpt-oss-120b": ("fp4",), "moonshotai/Kimi-K2.5": ("int4",)}
# InferenceX sends 2 C requests first from this day on (shared notes on its repository at 843c6254).
WARM_UP_FROM: Final = "2026-01-21"
# vLLM's own default where a harness names none and the process is no API server (vLLM 0.12, SchedulerConfig):
# with 8,192 the TTFTs of the AIConfigurator team's 45 rows of Qwen3-32B were 86 % off, with it 12 %.
TEAM_TOKENS: Final = 2048
RECIPE_TOKENS: Final = 8192  # InferenceX's recipes for vLLM
REQUESTS_PER_CLIENT: Final = 10
WARM_UP_PER_CLIENT: Final = 2
# InferenceX's clients ask for temperature 0 (its backend_request_func.py): nothing is sorted for top-p.
GREEDY: Final = "trace.top_p=none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured run, means in milliseconds; ``aic_*``: what AIConfigurator predicts (None: it refuses).

    ``clients``: of all engines together; the column ``batch_size`` has them per engine in data parallel, as
    the source's ``silicon_concurrency`` shows. ``tp``: GPUs that each engine's attention is cut over.
    """

    id: str
    source: str
    backend: str
    version: str
    model: str
    system: str
    precision: str
    experts: str
    prompt_tokens: int
    output_tokens: int
    clients: int
    tp: int
    pp: int
    attention_dp: int
    expert_tp: int
    expert_ep: int
    ttft_ms: float
    tpot_ms: float
    aic_ttft_ms: float | None
    aic_tpot_ms: float | None

    @property
    def group(self) -> tuple[str, str]:
        """What is left out together when constants are judged: model and system."""
        return self.model, self.system

    @property
    def by_team(self) -> bool:
        """Whether the AIConfigurator team measured it, with fixed lengths; else InferenceX did."""
        return "aic-auto" in self.source or self.source.startswith("source_file=/")

    @property
    def warmed_up(self) -> bool:
        """Whether requests were sent before those that count."""
        day = re.search(r"measured=(\d{4}-\d{2}-\d{2})", self.source)
        return self.by_team or day is None or day[1] >= WARM_UP_FROM


def read_rows(path: Path) -> Iterator[Row]:
    """Read the rows of a file. Raises UserError for a column that is missing or a value that is no number."""
    with path.open(newline="", encoding="utf-8") as file:
        for entry in csv.DictReader(file):
            yield _row(entry)


def _ranks(backend: str, tp: int, dp: int) -> int:
    """GPUs that attention is cut over in each engine.

    InferenceX names all GPUs of a server of vLLM its tp. So do the rows whose attention is in data parallel:
    with equally many clients their mean TPOTs are those of as many GPUs in tensor parallel (35.6 and 36.0 ms,
    59.3 and 60.1 ms of MiniMax-M2.5 on B300), and 512 clients queue for the memory of two GPUs, not of four.
    """
    return tp // dp if backend == "vllm" and tp % dp == 0 else tp


def _row(entry: Mapping[str, str]) -> Row:
    def count(name: str) -> int:
        return max(1, int(float(entry[name] or 1)))

    def ms(name: str) -> float | None:
        return float(entry[name]) if entry.get(name) else None

    return Row(
        id=entry["id"],
        source=entry["silicon_data_source"],
        backend=entry["backend"],
        version=entry["backend_version"],
        model=entry["model_path"],
        system=entry["system"],
        precision=entry["precision"],
        experts=entry["moe_quant_mode"],
        prompt_tokens=count("isl"),
        output_tokens=count("osl"),
        clients=count("batch_size") * count("attention_dp_size"),
        tp=_ranks(entry["backend"], count("tp_size"), count("attention_dp_size")),
        pp=count("pp_size"),
        attention_dp=count("attention_dp_size"),
        expert_tp=count("moe_tp_size"),
        expert_ep=count("moe_ep_size"),
        ttft_ms=float(entry["silicon_ttft_ms"]),
        tpot_ms=float(entry["silicon_tpot_ms"]),
        aic_ttft_ms=ms("aic_ttft_ms"),
        aic_tpot_ms=ms("aic_tpot_ms"),
    )


def refusal(row: Row) -> str:
    """Why a row is not run at all yet, with the order of work that opens it; empty if it is."""
    if row.backend != "vllm":
        return _LATER_ENGINES
    if row.model not in MODELS:
        return _LATER_MODELS
    if row.pp > 1:
        return _NO_PIPELINES
    return ""


def gpu_of(row: Row) -> str:
    """The catalogue's name of a row's GPU."""
    return GPUS.get(row.system, row.system.removesuffix("_sxm"))


def words(row: Row) -> list[str]:
    """The words of ``servetwin simulate`` that load the run's server as its clients did."""
    warm_up = WARM_UP_PER_CLIENT * row.clients if row.warmed_up else 0
    return [
        "engine=vllm_v1",
        f"model={MODELS[row.model]}",
        f"model.tp={row.tp}",
        f"cluster={gpu_of(row)}_x{row.tp * row.attention_dp}",
        *([f"engine.data_parallel_size={row.attention_dp}"] if row.attention_dp > 1 else []),
        *_precision(row),
        "engine.step_time=aiconfigurator",
        "engine.prefix_caching=false",
        *([f"engine.version={row.version}"] if re.fullmatch(r"\d+\.\d+(\.\d+)?", row.version) else []),
        *(["engine.enable_expert_parallel=true"] if row.expert_ep > 1 else []),
        *_limits(row),
        "trace=poisson",
        f"trace.lengths={row.prompt_tokens}x{row.output_tokens}",
        *([] if row.by_team else ["trace.length_ratio=0.8", GREEDY]),
        f"trace.clients={row.clients}",
        "trace.client_start_s=0",
        f"trace.requests={REQUESTS_PER_CLIENT * row.clients}",
        *([f"trace.warmup_requests={warm_up}"] if warm_up else []),
    ]


def _precision(row: Row) -> list[str]:
    if row.precision in ("", "bf16", *OF_EXPERTS.get(row.model, ())) and not row.model.endswith("-FP8"):
        return []
    stored = {"fp4": "nvfp4", "int4": "int4"}.get(row.precision, "fp8")
    if stored == "fp8" and (row.experts == "fp8_block" or row.model in IN_BLOCKS):
        stored = "fp8_block"
    # Recipes for Llama name FP8 KV; NVIDIA's NVFP4 checkpoints name it themselves.
    of_kv = stored == "nvfp4" or "Llama" in row.model
    if stored == "nvfp4" and row.model in WIDE_ATTENTION:
        stored = "nvfp4_mlp"
    return [f"model.precision={stored}", *(["engine.kv_cache_dtype=fp8"] if of_kv else [])]


def _limits(row: Row) -> list[str]:
    if row.by_team:
        return [f"engine.max_num_batched_tokens={TEAM_TOKENS}", "engine.max_num_seqs=256"]
    longest = row.prompt_tokens + row.output_tokens + 200
    return [
        f"engine.max_num_batched_tokens={max(RECIPE_TOKENS, row.clients)}",
        f"engine.max_num_seqs={row.clients}",
        f"engine.max_model_len={longest}",
    ]
