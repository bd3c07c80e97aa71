"""The calibrated roofline: four shares of peak and one constant, fitted to a profile's tables."""

from dataclasses import dataclass
from itertools import product

import numpy as np

from hwmodels.gpus.gpu import Gpu
from hwmodels.models.llm_shape import LlmShape
from hwmodels.profiles.profile import Floats, OpTables, Profile
from hwmodels.step_times.all_reduce import NO_TIME, AllReduce
from hwmodels.step_times.all_reduce_catalogue import Imitated, load_all_reduce
from hwmodels.step_times.fit import Line, fit_largest
from hwmodels.step_times.linear_fit import interpolated, lattice_rows
from hwmodels.step_times.roofline_step import Efficiencies, RooflineStepModel, roofline_step_model

# Start values for 1 / share, for each of the four.
START_SHARES = (0.6, 0.8, 0.4, 0.7)


@dataclass(frozen=True, slots=True)
class Iterations:
    """Measured or composed steps of one phase each, one value per row.

    ``squares`` is the sum over prompt chunks of new * (new + 2 * cached). ``context`` is the number of tokens
    whose KV a step reads: all contexts of decoding sequences, or the end positions of chunks.
    """

    tokens: Floats
    sequences: Floats
    squares: Floats
    context: Floats
    seconds: Floats


def fit_roofline(profile: Profile, gpu: Gpu, llm: LlmShape, tp: int) -> Efficiencies:
    """The shares that fit decode and prefill of the tables best, errors relative to whole steps."""
    if profile.tables.all_reduce is None:
        # Without measured all-reduces the tables describe a single rank.
        all_reduce = AllReduce(gpu.name, {tp: NO_TIME})
    else:
        all_reduce = _of_profile(profile, gpu)
    return fit_efficiencies(table_iterations(profile.tables), gpu, llm, tp, all_reduce)


def roofline_model(profile: Profile, gpu: Gpu, llm: LlmShape, tp: int) -> RooflineStepModel:
    """The roofline with the shares fitted to ``profile``."""
    efficiencies = fit_roofline(profile, gpu, llm, tp)
    return roofline_step_model(
        gpu,
        llm,
        tp,
        all_reduce=_of_profile(profile, gpu),
        efficiencies=efficiencies,
        fitted_to=profile.stamp.source,
    )


def fit_efficiencies(
    rows: Iterations, gpu: Gpu, llm: LlmShape, tp: int, all_reduce: AllReduce
) -> Efficiencies:
    """Four shares of at most 1, and seconds per step, fitted to whole steps."""
    peak = roofline_step_model(gpu, llm, tp, all_reduce=all_reduce, efficiencies=Efficiencies(1.0, 1.0))
    lines = [_line(peak, rows, *bounds) for bounds in product((False, True), repeat=3)]
    start = np.array([*(1.0 / share - 1.0 for share in START_SHARES), 0.0])
    parameters = fit_largest(lines, rows.seconds, rows.seconds, [start])
    compute, memory, attention_compute, attention_memory = (
        1.0 / (1.0 + float(extra)) for extra in parameters[:4]
    )
    return Efficiencies(compute, memory, attention_compute, attention_memory, float(parameters[4]))


def table_iterations(tables: OpTables) -> Iterations:
    """Every decode and prefill point of the tables as a whole step."""
    (n, context), decode_s = lattice_rows(tables.decode, "decode")
    (new, cached), prefill_s = lattice_rows(tables.prefill, "prefill")
    tokens, sequences = np.concatenate([n, new]), np.concatenate([n, np.ones(len(new))])
    seconds = np.concatenate([decode_s, prefill_s])
    seconds += interpolated(tables.dense, tokens) + interpolated(tables.head, sequences)
    if tables.all_reduce is not None:
        seconds += interpolated(tables.all_reduce, tokens)
    squares = np.concatenate([np.zeros(len(n)), new * (new + 2 * cached)])
    return Iterations(tokens, sequences, squares, np.concatenate([n * context, new + cached]), seconds)


def _of_profile(profile: Profile, gpu: Gpu) -> AllReduce:
    """The catalogue's all-reduce times for the engine in which the profile was measured."""
    return load_all_reduce(gpu.name, Imitated(profile.stamp.engine, profile.stamp.engine_version))


def _line(peak: RooflineStepModel, rows: Iterations, layers: bool, head: bool, attention: bool) -> Line:
    """One candidate line: for each part, whether it computes (True) or reads.

    Coefficients are 1 / share - 1 of compute, memory, attention compute and attention memory, and seconds. So
    a share is at most 1 because a coefficient is at least 0.
    """
    design = np.zeros((len(rows.seconds), 5))
    if layers:
        design[:, 0] = peak.layers_compute_s_per_token * rows.tokens
    else:
        design[:, 1] = peak.layers_weight_read_s
    if head:
        design[:, 0] += peak.head_compute_s_per_sequence * rows.sequences
    else:
        design[:, 1] += peak.head_weight_read_s
    if attention:
        design[:, 2] = peak.attention_compute_s_per_square_token * rows.squares
    else:
        design[:, 3] = peak.kv_read_s_per_token * rows.context
    design[:, 4] = 1.0
    all_reduce_s = np.array([peak.all_reduce.seconds(int(tokens)) for tokens in rows.tokens])
    return Line(design, design[:, :4].sum(axis=1) + all_reduce_s)
