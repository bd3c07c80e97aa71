"""A made-up profile whose times are known everywhere: forms of its op_table, round coefficients."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hwmodels.profiles.profile import Curve, Floats, Lattice, OpTables, Profile, Stamp
from hwmodels.step_times.op_table import decode_form, mixed_form, prefill_form
from hwmodels.step_times.step_time import Piece

STAMP = Stamp(
    gpu="toy_gpu",
    llm="toy_llm",
    tp=1,
    engine="vllm",
    engine_version="1.2.3",
    precision="bf16",
    source="made up",
    licence="CC0",
    files=(),
    notes=("one note",),
)
COUNTS = (1, 2, 4, 8, 16, 32, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256)
HEADS = (1, 16, 17, 32, 33, 48, 49, 64)
NEW, CACHED, SEQUENCES, CONTEXT = (
    (16, 32, 64, 128),
    (0, 16, 64, 256, 1024),
    (1, 2, 4, 8, 16),
    (16, 64, 256, 1024),
)
SKEW = Lattice(((0, 16, 64), (2, 8)), np.array([[0.0625, 0.25], [0.5, 0.75], [1.5, -0.5]]))


def dense_s(tokens: int) -> float:
    """5 ms, and 1 ms for each begun tile of 64 tokens."""
    return 5e-3 + 1e-3 * -(-tokens // 64)


def head_s(sequences: int) -> float:
    return 1e-4 + 1e-6 * sequences


def decode_s(sequences: Floats, context: Floats) -> Floats:
    one, n, chain, read = decode_form(sequences, context)
    return 3e-4 * one + 4e-6 * n + 1e-8 * chain + 1e-7 * read


def prefill_s(new: Floats, cached: Floats) -> Floats:
    one, tokens, square, chain, against, _ = prefill_form(new, cached)
    return 2e-4 * one + 5e-7 * tokens + 1e-9 * square + 1e-8 * chain + 2e-9 * against


def mixed_s(new: Floats, cached: Floats, sequences: Floats, context: Floats) -> Floats:
    one, tokens, _, pairs, chain, n, read, _, longest = mixed_form(new, cached, sequences, context)
    return 3e-4 * one + 1e-6 * tokens + 4e-9 * pairs + 6e-7 * chain + 2e-5 * n + 3e-7 * read + 1e-7 * longest


def wave(n: Floats, context: Floats) -> Floats:
    """Decode times that dip and jump."""
    return decode_s(n, context) * (1.0 + 0.4 * np.sin(context))


def lattice(function: object, *axes: Sequence[int]) -> Lattice:
    """``function`` (of the axes) at the points of their product."""
    assert callable(function)
    values = function(*np.ix_(*(np.asarray(axis, dtype=np.float64) for axis in axes)))
    return Lattice(tuple(map(tuple, axes)), np.broadcast_to(values, [len(axis) for axis in axes]).copy())


def toy_profile(**tables: object) -> Profile:
    """The made-up profile, some of its tables replaced."""
    whole = OpTables(
        dense=Curve(COUNTS, tuple(map(dense_s, COUNTS))),
        head=Curve(HEADS, tuple(map(head_s, HEADS))),
        all_reduce=None,
        decode=(lattice(decode_s, SEQUENCES, CONTEXT),),
        prefill=(lattice(prefill_s, NEW, CACHED),),
        mixed=(lattice(mixed_s, NEW, CACHED, SEQUENCES, CONTEXT),),
        skew=SKEW,
    )
    return Profile(STAMP, replace(whole, **tables))


def piece_s(pieces: tuple[Piece, ...], total: int) -> float:
    piece = next(piece for piece in pieces if total <= piece.context_limit)
    return piece.intercept_s + piece.slope_s_per_token * total
