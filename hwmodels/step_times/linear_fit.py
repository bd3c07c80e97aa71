"""Fits the tiled linear rung to the operation tables of a profile: a dozen coefficients, relative errors."""

from dataclasses import dataclass, replace

import numpy as np

from hwmodels.catalogue import load_llm
from hwmodels.errors import HardwareError
from hwmodels.models.parallelism import Parallelism
from hwmodels.profiles.profile import Curve, Floats, Lattice, OpTables, Profile
from hwmodels.step_times.expert_times import ExpertTimes, SharedExperts, lined
from hwmodels.step_times.fit import EQUAL_FIT, Line, fit_largest, largest_s, non_negative
from hwmodels.step_times.linear_step import ChunkLine, DecodeLine, DenseLines, MixedAttention, TiledStepModel
from hwmodels.step_times.mixture_step import MixtureStepModel
from hwmodels.step_times.step_error import UNJUDGED_LINES, of_percents
from hwmodels.step_times.step_time import StepLimits, StepModel

# Rows of a matrix product that kernels compute together; 1: no rounding.
DENSE_TILES = (1, 64, 128, 256)
# One wave of the attention kernel: about processors * 64 / query heads, so tens to hundreds of tokens.
ATTENTION_TILES = (1, *range(32, 1025, 8))
# Start values for the second slope of decode attention: sequences that fill a GPU.
LONGEST_SHARES = (0.0, 2.0, 4.0)
# Start values for the least time of a sequence: contexts that take no longer than an empty one.
BLOCK_TOKENS = (64.0, 128.0)
# Start values for the second slope of mixed steps: shares of the largest measured.
REREAD_SHARES = (0.01, 0.03, 0.1, 0.3)


@dataclass(frozen=True, slots=True)
class LinearFit:
    """The coefficients of one (GPU, model, tp); ``mixed`` is None if mixed steps were not measured."""

    dense: DenseLines
    decode: DecodeLine
    prefill: ChunkLine
    mixed: MixedAttention | None


def fit_linear(profile: Profile) -> LinearFit:
    """Non-negative coefficients that fit the tables best, each error relative to a whole iteration."""
    tables = profile.tables
    dense = _fit_dense(tables)
    chunk_step_s, prefill = _fit_prefill(tables.prefill, dense)
    # A step pays the launch cost of attention kernels once, for any requests in it.
    dense = _with_step(dense, dense.step_s + chunk_step_s)
    decode = _fit_decode(tables.decode, dense, chunk_step_s)
    mixed = _fit_mixed(tables.mixed, dense, prefill, decode, chunk_step_s)
    return LinearFit(dense, decode, prefill, mixed)


def linear_model(profile: Profile) -> StepModel:
    """The fitted model within the range of the tables; a mixture gets lines for its experts."""
    model = tiled_model(profile)
    if not profile.tables.experts:
        return model
    return MixtureStepModel(model, own_experts(lined(profile), profile))


def own_experts(experts: SharedExperts, profile: Profile) -> ExpertTimes:
    """Experts of an engine that does not share them: cut over its GPUs if that was measured, else whole."""
    tp = profile.stamp.tp
    cut = any((way.expert_tp, way.expert_ep) == (tp, 1) for way in experts.ways)
    return experts.times(load_llm(profile.stamp.llm), Parallelism(tp, expert_parallel=not cut))


def tiled_model(profile: Profile) -> TiledStepModel:
    """The fitted model without experts."""
    fit = fit_linear(profile)
    limits = measured_limits(profile.tables)
    return TiledStepModel(
        dense=fit.dense,
        decode=fit.decode,
        prefill=fit.prefill,
        mixed=fit.mixed,
        limits=limits,
        measured=limits,
        source=f"linear: fitted to {profile.stamp.source}",
        error_band="fitted to these tables; the error between their lines was not judged",
        labels=profile.stamp.labels,
        errors=of_percents(
            {phase: p95 for phase, p95 in UNJUDGED_LINES if phase != "mixed" or fit.mixed},
            "assumed",
            "not judged: taken as the worst of six judged tables",
        ),
    )


def measured_limits(tables: OpTables) -> StepLimits:
    """The range of the measured points."""
    (sequences, context), _ = lattice_rows(tables.decode, "decode")
    (new, cached), _ = lattice_rows(tables.prefill, "prefill")
    return StepLimits(
        max_decode_sequences=int(sequences.max()),
        max_context_tokens=int((sequences * context).max()),
        max_prefill_tokens=tables.dense.counts[-1],
        max_prompt_tokens=int((new + cached).max()),
    )


def lattice_rows(lattices: tuple[Lattice, ...], phase: str) -> tuple[list[Floats], Floats]:
    """Coordinates of every measured point of ``lattices``, axis by axis, and its seconds."""
    axes: list[list[Floats]] = []
    seconds: list[Floats] = []
    for lattice in lattices:
        measured = ~np.isnan(lattice.values)
        grids = np.meshgrid(*(np.array(axis, dtype=np.float64) for axis in lattice.axes), indexing="ij")
        axes.append([grid[measured] for grid in grids])
        seconds.append(lattice.values[measured])
    if not sum(map(len, seconds)):
        raise HardwareError(f"the profile has no {phase} attention times; measure or import them")
    return [np.concatenate(parts) for parts in zip(*axes, strict=True)], np.concatenate(seconds)


def interpolated(curve: Curve, counts: Floats) -> Floats:
    """Seconds of ``curve`` at ``counts``: linear between its points, constant outside."""
    seconds: Floats = np.interp(counts, curve.counts, curve.seconds)
    return seconds


def _columns(*columns: Floats | float) -> Floats:
    return np.stack(np.broadcast_arrays(*columns), axis=1).astype(np.float64)


def _padded(tokens: Floats, tile_tokens: int) -> Floats:
    whole: Floats = np.ceil(tokens / tile_tokens) * tile_tokens
    return whole


def _fit_dense(tables: OpTables) -> DenseLines:
    tokens = np.array(tables.dense.counts, dtype=np.float64)
    seconds = np.array(tables.dense.seconds)
    if tables.all_reduce is not None:
        seconds = seconds + interpolated(tables.all_reduce, tokens)
    sequences = np.array(tables.head.counts, dtype=np.float64)
    head_s = np.array(tables.head.seconds)
    head = non_negative(_columns(1.0, sequences) / head_s[:, None], np.ones(len(sequences)))
    fits = [(*_floor_and_line(tokens, seconds, tile), tile) for tile in DENSE_TILES]
    least = min(error for error, *_ in fits)
    _, lines, tile = next(fit for fit in fits if fit[0] <= least * (1.0 + EQUAL_FIT))
    floor_s, floor_per_token_s, line_s, per_token_s = map(float, lines)
    return DenseLines(
        step_s=float(head[0]),
        per_sequence_s=float(head[1]),
        floor_s=floor_s,
        floor_per_token_s=floor_per_token_s,
        line_s=line_s,
        per_token_s=per_token_s,
        tile_tokens=tile,
    )


def _floor_and_line(tokens: Floats, seconds: Floats, tile_tokens: int) -> tuple[float, Floats]:
    """Mean relative error and (floor, floor per token, line, per token)."""
    none = np.zeros(len(tokens))
    lines = (
        Line(_columns(1.0, tokens, 0.0, 0.0), none),
        Line(_columns(0.0, 0.0, 1.0, _padded(tokens, tile_tokens)), none),
    )
    # The last point is computing, the first is reading the weights: start with lines through these two.
    start = np.array([seconds[0], 0.0, 0.0, seconds[-1] / _padded(tokens, tile_tokens)[-1]])
    parameters = fit_largest(lines, seconds, seconds, [start])
    return float(np.abs(largest_s(lines, parameters) / seconds - 1.0).mean()), parameters


def _with_step(dense: DenseLines, step_s: float) -> DenseLines:
    return replace(dense, step_s=step_s)


def _dense_s(dense: DenseLines, tokens: Floats, sequences: Floats) -> Floats:
    pairs = zip(tokens.tolist(), sequences.tolist(), strict=True)
    return np.array([dense.seconds(int(token), int(sequence)) for token, sequence in pairs])


def _fit_prefill(lattices: tuple[Lattice, ...], dense: DenseLines) -> tuple[float, ChunkLine]:
    """Seconds of launching the kernel, and the line of a chunk in the wave that fits best."""
    (new, cached), seconds = lattice_rows(lattices, "prefill")
    weight_s = seconds + _dense_s(dense, new, np.ones(len(new)))
    fits = []
    # Without cached tokens waves cannot be told from tokens: later chunks cost the difference of two prompts.
    for tile in ATTENTION_TILES if cached.any() else (1,):
        design = _columns(1.0, new, _padded(new, tile) * (new + 2 * cached)) / weight_s[:, None]
        parameters = non_negative(design, seconds / weight_s)
        fits.append((float(np.square(design @ parameters - seconds / weight_s).sum()), tile, parameters))
    # Waves that pad all measured points in one proportion fit equally well: use the shortest.
    least = min(residual for residual, *_ in fits)
    _, tile, parameters = next(fit for fit in fits if fit[0] <= least * (1.0 + EQUAL_FIT))
    return float(parameters[0]), ChunkLine(float(parameters[1]), float(parameters[2]), tile)


def _fit_decode(lattices: tuple[Lattice, ...], dense: DenseLines, kernel_s: float) -> DecodeLine:
    (sequences, context), seconds = lattice_rows(lattices, "decode")
    weight_s = seconds + _dense_s(dense, sequences, sequences)
    kernel = np.full(len(seconds), kernel_s)
    lines = (
        Line(_columns(1.0, sequences, sequences * context, 0.0, 0.0), kernel),
        Line(_columns(1.0, sequences, 0.0, context, 0.0), kernel),
        Line(_columns(1.0, 0.0, 0.0, 0.0, sequences), kernel),
    )
    slope = float((seconds / (sequences * context)).min())
    starts = [
        np.array([0.0, 0.0, slope, share * slope, block * slope])
        for share in LONGEST_SHARES
        for block in BLOCK_TOKENS
    ]
    return DecodeLine(*map(float, fit_largest(lines, seconds, weight_s, starts)))


def _fit_mixed(
    lattices: tuple[Lattice, ...], dense: DenseLines, chunk: ChunkLine, decode: DecodeLine, kernel_s: float
) -> MixedAttention | None:
    """The five coefficients of hwmodels.step_times.linear_step.MixedAttention, given the chunk line."""
    if not lattices:
        return None
    (new, cached, sequences, context), seconds = lattice_rows(lattices, "mixed")
    weight_s = seconds + _dense_s(dense, new + sequences, sequences + 1)
    square_s = chunk.per_square_token_s
    wave_s = 2 * square_s * chunk.tile_tokens
    alone_s = kernel_s + chunk.per_token_s * new
    work_s = alone_s + square_s * new * (new + 2 * cached)
    total = sequences * context
    on_top = _columns(sequences, new, 0.0, 0.0, 0.0)
    lines = (
        Line(on_top, alone_s + wave_s * context),
        Line(on_top, alone_s + square_s * _padded(new, chunk.tile_tokens) * (new + 2 * cached)),
        Line(on_top + _columns(0.0, 0.0, total, 0.0, 0.0), work_s),
        Line(on_top + _columns(0.0, 0.0, 0.0, total, -1.0 / sequences), work_s),
    )
    # A decoding sequence takes a query tile as a chunk does, so its token costs a good part of the wave's.
    # The second slope may begin anywhere within the measured totals.
    slope = max(0.3 * wave_s, 1.5 * decode.per_context_token_s)
    free_s = slope * float((total * sequences).max())
    sequence_s = max(decode.per_sequence_s, decode.least_per_sequence_s)
    starts = [np.array([4 * sequence_s, 0.0, slope, 2 * slope, share * free_s]) for share in REREAD_SHARES]
    parameters = fit_largest(lines, seconds, weight_s, starts)
    per_sequence_s, per_new_token_s, per_context_token_s, reread_per_context_token_s, reread_free_s = map(
        float, parameters
    )
    return MixedAttention(
        chunk=chunk,
        per_sequence_s=per_sequence_s,
        per_new_token_s=per_new_token_s,
        per_context_token_s=per_context_token_s,
        reread_per_context_token_s=reread_per_context_token_s,
        reread_free_s=reread_free_s,
    )
