"""A profile of a tiny model whose times follow a known linear truth."""

import numpy as np

from hwmodels.profiles.profile import Curve, Lattice, OpTables, Profile, Stamp
from hwmodels.step_times.linear_step import ChunkLine, DecodeLine, DenseLines, MixedAttention, TiledStepModel
from hwmodels.step_times.step_time import StepLimits

STAMP = Stamp(
    gpu="rtx4090",
    llm="llama3_1_8b",
    tp=1,
    engine="toy",
    engine_version="1",
    precision="bf16",
    source="made up",
    licence="none",
    files=(),
)
CHUNK = ChunkLine(per_token_s=8e-7, per_square_token_s=2e-9, tile_tokens=256)
TRUTH = TiledStepModel(
    dense=DenseLines(
        step_s=1.2e-3,
        per_sequence_s=2e-6,
        floor_s=1.5e-2,
        floor_per_token_s=3e-5,
        line_s=1e-3,
        per_token_s=9e-5,
        tile_tokens=128,
    ),
    decode=DecodeLine(1e-4, 5e-6, 1.4e-7, 3e-7, 3e-5),
    prefill=CHUNK,
    mixed=MixedAttention(
        chunk=CHUNK,
        per_sequence_s=4e-5,
        per_new_token_s=2e-6,
        per_context_token_s=3e-7,
        reread_per_context_token_s=6e-7,
        reread_free_s=0.2,
    ),
    limits=StepLimits(64, 65_536, 2048, 6144),
    measured=StepLimits(64, 65_536, 2048, 6144),
    source="made up",
    error_band="none",
)
COUNTS = (1, 2, 4, 8, 16, 32, 64)
CONTEXTS = (64, 256, 1024)
NEW = (16, 64, 256, 260, 512, 1024)
CACHED = (0, 512, 4096)
KERNEL_S = 2e-4


def tiny_profile(stamp: Stamp = STAMP, mixed: bool = True) -> Profile:
    """Tables that ``TRUTH`` makes, the attention kernel's start taken out of its steps."""
    truth, head = TRUTH, TRUTH.dense
    tokens = tuple(sorted({*COUNTS, *range(128, 2049, 64), *range(160, 2048, 128)}))

    def decode_s(n: int, context: int) -> float:
        return KERNEL_S + attention_s(truth, n, n * context)

    def prefill_s(new: int, cached: int) -> float:
        return KERNEL_S + truth.prefill_attention_s(new, cached)

    def mixed_s(new: int, cached: int, n: int, context: int) -> float:
        assert truth.mixed is not None
        return prefill_s(new, cached) + truth.mixed.mixed_decode_attention_s(n, n * context, new, cached)

    tables = OpTables(
        dense=Curve(tokens, tuple(head.seconds(t, 0) - head.step_s for t in tokens)),
        head=Curve(COUNTS, tuple(head.step_s - KERNEL_S + head.per_sequence_s * n for n in COUNTS)),
        all_reduce=None,
        decode=(_lattice(decode_s, COUNTS, CONTEXTS),),
        prefill=(_lattice(prefill_s, NEW, CACHED),),
        mixed=(_lattice(mixed_s, NEW, CACHED, COUNTS, CONTEXTS),) if mixed else (),
        skew=None,
    )
    return Profile(stamp, tables)


def attention_s(model: TiledStepModel, n: int, total: int) -> float:
    piece = next(piece for piece in model.decode_attention(n) if total <= piece.context_limit)
    return piece.intercept_s + piece.slope_s_per_token * total


def _lattice(seconds: object, *axes: tuple[int, ...]) -> Lattice:
    assert callable(seconds)
    values = np.array([seconds(*map(int, point)) for point in _points(axes)], dtype=np.float64)
    return Lattice(axes, values.reshape([len(axis) for axis in axes]))


def _points(axes: tuple[tuple[int, ...], ...]) -> np.ndarray:
    return np.stack([grid.ravel() for grid in np.meshgrid(*axes, indexing="ij")], axis=1)
