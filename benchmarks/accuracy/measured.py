"""Runs that others measured, as rows of their own files: what was served, how it was loaded, what came out.

The files lie in the folder of $SERVETWIN_REAL_RUNS and are not part of this repository: ``h100_vllm.csv``
(stages of inference-sim's training and validation runs) and ``qwen3_8b_h100_vllm_0_30.csv`` (silybench-data,
CC BY 4.0), and ``models/`` with the config.json of models that the catalogue lacks.
"""

import csv
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from serving.vocabulary.errors import UserError

VARIABLE: Final = "SERVETWIN_REAL_RUNS"
STAGES, QWEN3_8B = "h100_vllm.csv", "qwen3_8b_h100_vllm_0_30.csv"
SOURCES: Final = {
    STAGES: "inference-sim, stages on H100 (vLLM 0.15)",
    QWEN3_8B: "silybench, Qwen3-8B on H100 (vLLM 0.30)",
}
# Model of the files -> the catalogue's name, or the folder below models/ that has its config.json.
CATALOGUE: Final = {"meta-llama/Llama-2-7b-hf": "llama2_7b"}
CONFIGS: Final = {
    "codellama/CodeLlama-34b-Instruct-hf": "codellama-34b-instruct-hf",
    "Qwen/Qwen3-14B": "qwen3-14b",
    "Qwen/Qwen3-8B": "qwen3-8b",
}
KV_TOKENS_OF_QWEN3_8B: Final = 377_024  # as its server logged
# Requests wait for more than ten times what the same server takes without a queue.
SATURATED_TTFT_MS: Final = 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One run. ``measured``: metric of a summary (``ttft_ms.mean``) -> what its clients measured.

    ``load``: the row's numbers of the load. ``engine``: words for its server beside the preset.
    """

    name: str
    source: str
    model: str
    tp: int
    version: str
    engine: tuple[str, ...]
    load: Mapping[str, float]
    measured: Mapping[str, float]

    @property
    def saturated(self) -> bool:
        """Whether more requests came than the server could take."""
        return self.source == STAGES and self.measured["ttft_ms.mean"] > SATURATED_TTFT_MS

    @property
    def title(self) -> str:
        """Model and load in few words."""
        load, model = self.load, self.model.rpartition("/")[2]
        rate = self.source == STAGES
        how = f"{load['rate_per_s']:g}/s" if rate else f"{load['concurrency']:g} clients"
        return f"{model}, {load['prompt_tokens']:g}/{load['output_tokens']:g} tokens, {how}"


def folder() -> Path:
    """The folder that holds the files; UserError if it is not named or lacks them."""
    text = os.environ.get(VARIABLE)
    if not text:
        raise UserError(f"{VARIABLE} is not set: name the folder that holds {STAGES} and {QWEN3_8B}")
    path = Path(text)
    if not (path / STAGES).is_file():
        raise UserError(f"{path} has no {STAGES}: set {VARIABLE} to the folder of the measured runs")
    return path


def model_word(model: str, root: Path) -> str:
    """What ``model=`` is for a model of the files."""
    return CATALOGUE.get(model) or str(root / "models" / CONFIGS[model])


def measured_runs(root: Path) -> list[MeasuredRun]:
    """All runs of both files."""
    return [*_stages(root / STAGES), *_qwen3_8b(root / QWEN3_8B)]


def _stages(path: Path) -> Iterator[MeasuredRun]:
    names = {"mean": "mean", "p90": "p90", "p99": "p99"}
    for row in _rows(path):
        measured = {
            f"{latency}_ms.{ours}": float(row[f"{latency}_{theirs}_ms"])
            for latency in ("ttft", "e2e")
            for ours, theirs in names.items()
        }
        keys = ("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization")
        load = ("rate_per_s", "duration_s", "prompt_tokens", "output_tokens", "system_prompt_tokens")
        yield MeasuredRun(
            name=f"{row['run']}_{row['stage']}",
            source=STAGES,
            model=row["model"],
            tp=int(row["tp"]),
            version="0.15",
            engine=tuple(f"engine.{key}={row[key]}" for key in keys),
            load={key: float(row[key]) for key in load},
            measured=measured | {"tpot_ms.mean": float(row["tpot_mean_ms"])},
        )


def _qwen3_8b(path: Path) -> Iterator[MeasuredRun]:
    names = {
        "ttft_ms.p95": "ttft_p95_ms",
        "ttft_ms.p99": "ttft_p99_ms",
        "tpot_ms.p95": "tpot_p95_ms",
        "itl_ms.p50": "itl_p50_ms",
        "throughput.output_tokens_per_s": "output_tokens_per_s",
        "energy.gpu_mean_w": "power_w",
    }
    load = ("prompt_tokens", "output_tokens", "concurrency", "requests")
    for row in _rows(path):
        yield MeasuredRun(
            name=f"qwen3_8b_{row['prompt_tokens']}_{row['concurrency']}",
            source=QWEN3_8B,
            model="Qwen/Qwen3-8B",
            tp=1,
            version="0.30",
            engine=(
                "engine.max_num_seqs=1024",
                "engine.max_num_batched_tokens=8192",
                f"engine.kv_tokens={KV_TOKENS_OF_QWEN3_8B}",
            ),
            load={key: float(row[key]) for key in load},
            measured={ours: float(row[theirs]) for ours, theirs in names.items()},
        )


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
