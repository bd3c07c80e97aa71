"""KV memory by vLLM's own arithmetic (hwmodels/models/vllm_memory.py) beside what vLLM logged.

python -m benchmarks.kv_memory     (a second)

``benchmarks/kv_tokens.csv`` has one logged value a row, with version, GPU, flags and source: tokens of "GPU
KV cache size", or GiB of "Available KV cache memory" where a source has no tokens. Flags that a source leaves
out are vLLM's defaults of that version. For each: the error of the catalogue's reserve, which is one number
for a GPU, of vLLM's own arithmetic, and whether the logged value lies in its range.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.command import command, no_words
from hwmodels.catalogue import llm_names, load_gpu, load_llm
from hwmodels.models.kv_capacity import KvCapacity, kv_capacity
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.vllm_memory import GIB, EngineLimits
from hwmodels.step_times.engine_overhead import vllm_graph_batches

LOGGED: Final = Path(__file__).with_name("kv_tokens.csv")
_BLOCK: Final = 16


def _qwen(name: str, layers: int, hidden: int, *, intermediate: int, **fields: int | bool) -> LlmShape:
    """Return a shape of Qwen that the catalogue lacks, from the model's config.json."""
    sizes = {"head_dim": 128, "vocab": 151_936, "max_context_tokens": 40_960} | fields
    return LlmShape(
        name=name,
        layers=layers,
        hidden=hidden,
        intermediate=intermediate,
        bytes_per_parameter=2,
        source="config.json of the model's repository",
        **({"tied_embeddings": False} | sizes),  # type: ignore[arg-type]
    )


SHAPES: Final = {
    shape.name: shape
    for shape in (
        _qwen(
            "qwen3_0_6b", 28, 1024, intermediate=3072, heads=16, kv_heads=8, qk_norm=True,
            tied_embeddings=True,
        ),
        _qwen("qwen3_8b", 36, 4096, intermediate=12_288, heads=32, kv_heads=8, qk_norm=True),
        _qwen("qwen3_14b", 40, 5120, intermediate=17_408, heads=40, kv_heads=8, qk_norm=True),
        _qwen(
            "qwen2_5_7b", 28, 3584, intermediate=18_944, heads=28, kv_heads=4, qkv_bias=True, vocab=152_064,
            max_context_tokens=32_768,
        ),
        _qwen(
            "deepseek_r1_distill_qwen_14b", 48, 5120, intermediate=13_824, heads=40, kv_heads=8,
            qkv_bias=True, vocab=152_064, max_context_tokens=131_072,
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """A logged value, in tokens, and both calculations of it."""

    case: str
    tokens: int
    declared: KvCapacity
    profiled: KvCapacity
    flags: str

    @property
    def error(self) -> float:
        """How much more vLLM's arithmetic gives than was logged, as a share."""
        return self.profiled.tokens / self.tokens - 1

    @property
    def inside(self) -> bool:
        """Whether the range holds the logged value."""
        fewest, most = (blocks * _BLOCK for blocks in self.profiled.ends)
        return fewest <= self.tokens <= most


def logged_values() -> Iterator[Logged]:
    """Yield the rows of the file."""
    with LOGGED.open(encoding="utf-8", newline="") as file:
        yield from map(_judged, csv.DictReader(file))


def shape_of(name: str) -> LlmShape:
    """Return the catalogue's shape of that name, or the one above."""
    return load_llm(name) if name in llm_names() else SHAPES[name]


def _judged(row: Mapping[str, str]) -> Logged:
    gpu, llm, tp = load_gpu(row["gpu"]), shape_of(row["model"]), int(row["tp"])
    sequences, tokens = int(row["max_num_seqs"]), int(row["max_num_batched_tokens"])
    captured = vllm_graph_batches(min(2 * sequences, tokens)) if row["cuda_graphs"] == "true" else ()
    limits = EngineLimits(
        version=row["version"], max_num_seqs=sequences, max_num_batched_tokens=tokens, captured=captured
    )
    share = float(row["gpu_memory_utilization"])
    declared, profiled = (
        kv_capacity(gpu, llm, tp=tp, memory_utilization=share, block_tokens=_BLOCK, limits=known)
        for known in (None, limits)
    )
    of_gpu = float(row["kv_gib"] or 0) * GIB * tp // llm.kv_bytes_per_token
    return Logged(
        case=f"{row['model']}, {tp} {row['gpu']}, vLLM {row['version']}",
        tokens=int(row["kv_tokens"] or of_gpu),
        declared=declared,
        profiled=profiled,
        flags=row["flags"],
    )


def main(words: list[str]) -> None:
    """Print the table."""
    no_words(words)
    print("| case | logged tokens | the catalogue's reserve | vLLM's arithmetic | error | in its range |")
    print("|---|---|---|---|---|---|")
    for value in logged_values():
        note = "" if value.flags == "recorded" else f" ({value.flags})"
        declared = value.declared.tokens / value.tokens - 1
        print(
            f"| {value.case}{note} | {value.tokens:,} | {declared:+.1%} | {value.profiled.tokens:,} | "
            f"{value.error:+.1%} | {'yes' if value.inside else 'no'} |"
        )


if __name__ == "__main__":
    command("benchmarks.kv_memory", __doc__, main)
