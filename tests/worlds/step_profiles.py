"""Whole-step profiles of made-up iterations whose law is known."""

from collections.abc import Callable, Sequence
from pathlib import Path

from hwmodels.importers.step_profile_file import Row, write_step_profile
from hwmodels.profiles.profile import Stamp

STAMP = Stamp(
    gpu="a100_80g",
    llm="llama3_8b",
    tp=1,
    engine="vllm",
    engine_version="0.19.0",
    precision="bf16",
    source="made up",
    licence="CC0",
    files=(),
)
SEQUENCES = (1, 2, 4, 8, 16, 32)
CONTEXTS = (16, 128, 512, 1024)
PROMPTS = (64, 128, 256, 512, 1024)
CACHED = (0, 512, 2048)


def law_s(prefill: int, chunks: int, cached: int, sequences: int, context: int) -> float:
    """Seconds of a step: reading weights or computing, squares of prompts, reading contexts."""
    tokens = prefill + sequences
    squares = prefill * (prefill / chunks + 2 * cached) if chunks else 0.0
    return max(0.008, 0.004 + 4e-5 * tokens) + 2e-9 * squares + 3e-8 * context


def grid(
    law: Callable[[int, int, int, int, int], float] = law_s, mixed: bool = True, repeats: int = 3
) -> list[Row]:
    """Decodes over sequences and contexts, prompts over tokens and cache, and some of both."""
    shapes = [(0, 0, 0, n, n * context) for n in SEQUENCES for context in CONTEXTS]
    shapes += [(new, 1, cached, 0, 0) for new in PROMPTS for cached in CACHED]
    if mixed:
        shapes += [(new, 1, 0, n, n * 512) for new in (128, 512) for n in (4, 16)]
    return [(*shape, repeats, law(*shape)) for shape in shapes]


def folder(
    path: Path, rows: Sequence[Row] | None = None, stamp: Stamp = STAMP, includes_overhead: bool = True
) -> Path:
    """A profile written into ``path``."""
    write_step_profile(
        path, stamp, includes_overhead=includes_overhead, rows=grid() if rows is None else rows
    )
    return path
