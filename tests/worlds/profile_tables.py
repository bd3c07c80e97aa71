"""Small measured tables in every format that is imported, with times that follow from a formula."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from hwmodels.profiles.profile import Curve, Lattice, OpTables, Profile, Stamp

Row = dict[str, object]

TOKENS = (1, 2, 4, 16, 64, 256)
SEQUENCES = (1, 2, 4, 8)
# Two grids, as the published ones: powers of two, and steps of about 1.5; they share the first chunk.
GRID = ((16, 32, 64), (0, 16, 64), (1, 2, 4), (16, 64, 128))
OTHER_GRID = ((16, 24, 36), (0, 48, 64), (1, 2, 4), (48, 64, 96))
MLP_OPS = (
    "emb", "input_layernorm", "attn_pre_proj", "attn_rope", "attn_post_proj", "post_attention_layernorm",
    "mlp_up_proj", "mlp_act", "mlp_down_proj", "add",
)  # fmt: skip
A100 = "NVIDIA A100-SXM4-80GB"


def small_profile(**stamp: object) -> Profile:
    """A whole profile made by hand, with a hole in its decode lattice."""
    words = {
        "gpu": "a100_80g", "llm": "llama3_8b", "tp": 2, "engine": "vllm", "engine_version": "0.14.0",
        "precision": "bf16", "source": "made up", "licence": "MIT", "files": (("a.csv", "00ff"),),
        "notes": ("nothing was measured",),
    } | stamp  # fmt: skip
    mixed = np.arange(1.0, 17.0).reshape(2, 2, 2, 2) * 1e-3
    tables = OpTables(
        dense=Curve((1, 8, 64), (1e-2, 1.1e-2, 2e-2)),
        head=Curve((1, 4), (1e-3, 2e-3)),
        all_reduce=Curve((1, 64), (1e-4, 0.1 + 0.2)),
        decode=(Lattice(((1, 2), (16, 32)), np.array([[1e-3, 2e-3], [1.5e-3, np.nan]])),),
        prefill=(Lattice(((16, 32), (0,)), np.array([[1e-3], [3e-3]])),),
        mixed=(Lattice(((16, 32), (0, 16), (1, 2), (16, 32)), mixed),),
        skew=Lattice(((0, 16), (2, 4)), np.array([[0.0, 1.0], [0.5, np.nan]])),
    )
    return Profile(Stamp(**words), tables)  # type: ignore[arg-type]


def attention_us(chunk: int, cached: int, sequences: int, context: int) -> float:
    """The made-up attention time of one layer."""
    return 5.0 + chunk * (chunk + 2 * cached) * 1e-3 + sequences * context * 1e-2


def attention_rows(grids: Sequence[Sequence[Sequence[int]]] = (GRID,)) -> list[Row]:
    """Every decode, prefill and mixed point of the grids, each once."""
    points: set[tuple[int, ...]] = set()
    for chunks, cached, sequences, contexts in grids:
        points |= {(0, 0, n, kv) for n, kv in product(sequences, contexts)}
        points |= {(chunk, kp, 0, 0) for chunk, kp in product(chunks, cached)}
        points |= set(product(chunks, cached, sequences, contexts))
    names = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    return [dict(zip(names, point)) | {"time_us": attention_us(*point)} for point in sorted(points)]


def layer_rows(layers: Mapping[str, float], count: str, counts: Iterable[int]) -> list[Row]:
    """``time_us`` of each layer: its number, plus a thousandth of it per count."""
    return [
        {"layer": layer, count: n, "time_us": base * (1 + n / 1000)}
        for layer, base in layers.items()
        for n in counts
    ]


DENSE_US = {
    "act_fn": 2.0, "down_proj": 30.0, "embedding": 1.0, "final_layernorm": 3.0, "gate_up_proj": 60.0,
    "layernorm": 3.0, "o_proj": 10.0, "qkv_proj": 20.0, "rotary_emb": 4.0,
}  # fmt: skip
SKEW = (
    {"pc": 0, "n_label": "n<=4", "skew_rate_label": "sr<=5%", "alpha": 0.2, "n_samples": 3},
    {"pc": 0, "n_label": "n<=4", "skew_rate_label": "sr<=40%", "alpha": 0.6, "n_samples": 1},
    {"pc": 0, "n_label": "n<=4", "skew_rate_label": "sr>70%", "alpha": 9.0, "n_samples": 5},
    {"pc": 16, "n_label": "n<=4", "skew_rate_label": "sr>70%", "alpha": -2.0, "n_samples": 2},
    {"pc": 0, "n_label": "n<=2", "skew_rate_label": "sr<=15%", "alpha": 1.5, "n_samples": 2},
    {"pc": 0, "n_label": "n>256", "skew_rate_label": "sr<=15%", "alpha": 0.9, "n_samples": 2},
)


def write_csv(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    """``rows`` at ``path``, its folders made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(list(rows)).to_csv(path, index=False)
    return path


def write_llmservingsim(
    root: Path, dense: Mapping[str, float] = DENSE_US, tp: int = 1, meta: str | None = ""
) -> Path:
    """RTX4090/meta-llama/Llama-3.1-8B under ``root``; ``meta`` None: no meta.yaml, else appended to it."""
    folder = root / "RTX4090" / "meta-llama" / "Llama-3.1-8B"
    write_csv(folder / f"tp{tp}" / "dense.csv", layer_rows(dense, "tokens", TOKENS))
    heads = layer_rows({"lm_head": 100.0, "sampler": 10.0}, "sequences", SEQUENCES)
    write_csv(folder / f"tp{tp}" / "per_sequence.csv", heads)
    write_csv(folder / f"tp{tp}" / "attention.csv", attention_rows())
    write_csv(folder / f"tp{tp}" / "skew_fit.csv", SKEW)
    if meta is not None:
        text = "vllm_version: 0.19.0\ngpu: NVIDIA GeForce RTX 4090\nvariant: bf16\ntp_degrees: [1, 2]\n"
        overrides = (
            "engine_effective:\n  hf_overrides:\n    num_attention_heads: 16\n    num_key_value_heads: 4\n"
        )
        (folder / "meta.yaml").write_text(text + overrides + meta, encoding="utf-8")
    return folder


def product_ms(m: int, n: int, k: int) -> float:
    """Made-up time of a matrix product, in ms."""
    return 0.002 + n * k * 1e-9 * (1 + m / 100)


def write_aiconfigurator(
    root: Path,
    change: Callable[[str, list[Row]], list[Row]] = lambda name, rows: rows,
    version: str = "0.14.0",
) -> Path:
    """a100_sxm under ``root``: Llama-3-8B at tp 1 and 2 exactly, heads 8/8 for what has as many KV heads.

    ``change`` gets each table's name and rows, and returns the rows to write.
    """
    folder = root / "a100_sxm"
    shapes = [*product((2048, 3072, 4096, 6144, 16384, 65536), (2048, 4096, 8192, 16384))]
    gemm = [
        {"gemm_dtype": "bfloat16", "m": m, "n": n, "k": k, "latency": product_ms(m, n, k)}
        for n, k in shapes
        for m in (1, 16, 256)
    ]
    dtype = {"attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16", "head_dim": 128}
    pairs = [(32, 8), (16, 4), (32, 32), (8, 8)]
    context = [
        {"batch_size": b, "isl": isl, "step": 0, "num_heads": h, "num_key_value_heads": kv, **dtype,
         "latency": 0.01 + b * isl**2 * h * 1e-8}
        for h, kv in pairs for b, isl in product((1, 2), (1, 16, 64, 256))
    ]  # fmt: skip
    generation = [
        {"batch_size": b, "isl": 1, "step": step, "num_heads": h, "num_key_value_heads": kv, **dtype,
         "latency": 0.01 + b * (1 + step) * kv * 1e-6}
        for h, kv in pairs if (h, kv) != (32, 32)
        for b, step in product((1, 2, 4, 8, 16), (15, 63, 255)) if b * step < 4000
    ]  # fmt: skip
    reduce = [
        {"backend": backend, "allreduce_dtype": "bfloat16", "num_gpus": 2, "message_size": size,
         "latency": slow * (0.005 + size * 1e-9)}
        for backend, slow in (("vllm_graph", 1), ("vllm_eager", 9)) for size in (1024, 4096, 8192, 1048576)
    ]  # fmt: skip
    for kind, name, rows in (
        ("gemm", "gemm_perf", gemm),
        ("attention", "context_attention_perf", context),
        ("attention", "generation_attention_perf", generation),
        ("comm", "custom_allreduce_perf", reduce),
    ):
        path = folder / kind / "vllm" / version / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        frame = pd.DataFrame(change(name, [{"device": A100, **row} for row in rows]))
        frame.to_parquet(path, index=False)
    return folder


def write_mlp(path: Path, **changed: object) -> Path:
    """Vidur's table of Llama-3-8B at tp 1 and 2; operation i takes i + 1 microseconds per token."""
    shape = {"n_head": 32, "n_kv_head": 8, "n_embd": 4096, "n_expanded_embd": 14336}
    rows = [
        {f"time_stats.{op}.median": (i + 1) * 1e-3 * tokens / tp for i, op in enumerate(MLP_OPS)}
        | {"num_tokens": tokens, "num_tensor_parallel_workers": tp, **shape, **changed}
        for tp in (1, 2)
        for tokens in (*TOKENS, TOKENS[-1])
    ]
    return write_csv(path, rows)


def large_profile() -> Profile:
    """A profile without holes up to 512 tokens, whose times are lines."""
    counts, contexts = (1, 2, 4, 8, 16, 64, 512), (16, 64, 256, 1024)
    decode = np.array([[1e-4 + n * context * 1e-8 for context in contexts] for n in counts[:5]])
    prefill = np.array([[1e-4 + new * (new + cached) * 1e-8 for cached in (0, *contexts)] for new in counts])
    tables = OpTables(
        dense=Curve(counts, tuple(1e-2 + count * 1e-5 for count in counts)),
        head=Curve(counts[:5], tuple(1e-4 + count * 1e-6 for count in counts[:5])),
        all_reduce=None,
        decode=(Lattice((counts[:5], contexts), decode),),
        prefill=(Lattice((counts, (0, *contexts)), prefill),),
        mixed=(),
        skew=None,
    )
    return Profile(replace(small_profile().stamp, tp=1), tables)
