"""Error of a step-time model on points it has not seen: every second grid line is withheld from it."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hwmodels.catalogue import load_llm
from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Curve, ExpertTable, Floats, Lattice, Profile
from hwmodels.step_times.expert_times import ExpertTimes, at_points, experts_of, lattice_points, with_experts
from hwmodels.step_times.linear_fit import own_experts
from hwmodels.step_times.mixture_step import MixtureStepModel
from hwmodels.step_times.op_table import dense_by_tokens, seconds_by_count
from hwmodels.step_times.op_table_step import OpTableStepModel
from hwmodels.step_times.step_time import StepModel, pieces_s

PHASES = ("decode", "prefill", "mixed")
EXPERTS = "experts"
Builder = Callable[[Profile], StepModel]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseError:
    """Relative error of whole steps at ``rows`` held-out points; ``bias_percent`` above 0 is too slow.

    ``refused`` more points are outside the model's range: if a table has holes, the thinned one ends earlier.
    """

    phase: str
    rows: int
    refused: int
    mean_percent: float
    p95_percent: float
    bias_percent: float


@dataclass(frozen=True, slots=True)
class _Step:
    new: int
    cached: int
    sequences: int
    context: int

    @property
    def tokens(self) -> int:
        return self.new + self.sequences

    @property
    def heads(self) -> int:
        return self.sequences + (1 if self.new else 0)

    @property
    def longest(self) -> int:
        return max(self.new + self.cached, self.context)


def thinned(profile: Profile) -> Profile:
    """The profile with every second value of each axis left out; the ends of an axis stay.

    An axis is all values of it in the lattices of one phase; alpha of unequal contexts stays as it is.
    """
    tables = profile.tables
    half = replace(
        tables,
        dense=_thin_curve(tables.dense),
        head=_thin_curve(tables.head),
        all_reduce=None if tables.all_reduce is None else _thin_curve(tables.all_reduce),
        decode=_thin_lattices(tables.decode),
        prefill=_thin_lattices(tables.prefill),
        mixed=_thin_lattices(tables.mixed),
        experts=tuple(_thin_experts(table) for table in tables.experts),
    )
    return replace(profile, tables=half)


def op_table_model(profile: Profile) -> StepModel:
    """The op tables of an engine that does not share its experts with others."""
    model, experts = OpTableStepModel(profile), _experts(profile)
    return model if experts is None else MixtureStepModel(model, experts)


def held_out_errors(profile: Profile, build: Builder = op_table_model) -> tuple[PhaseError, ...]:
    """Errors of ``build(thinned(profile))`` on the thinned-out points, per phase that has such points.

    A step is the dense layers of its tokens, the measured attention, and the head of its sequences. Excluded
    are steps with more tokens than the dense table, and steps with a longer context than the profile's model
    takes: attention tables are shared between models, and no run gets there. A phase without held-out points
    is excluded as well. ``experts``, of op tables, are times of the experts alone, at the most activated
    experts for every number of tokens and every way to share them.
    """
    own = _expert_errors(profile) if build is op_table_model else ()
    return (*_errors(build(thinned(profile)), profile, True), *own)


def seen_errors(profile: Profile, build: Builder) -> tuple[PhaseError, ...]:
    """Errors of ``build(profile)`` on all points that ``held_out_errors`` evaluates or keeps."""
    return _errors(build(profile), profile, False)


def _errors(model: StepModel, profile: Profile, unseen: bool) -> tuple[PhaseError, ...]:
    dense, experts = dense_by_tokens(profile.tables), _experts(profile)
    if experts is not None:
        dense = with_experts(dense, experts)
    head = seconds_by_count(profile.tables.head)
    longest = _longest_context(profile)
    judged = (
        _phase_error(
            model, profile=profile, phase=phase, dense=dense, head=head, longest=longest, unseen=unseen
        )
        for phase in PHASES
    )
    return tuple(error for error in judged if error is not None)


def _phase_error(
    model: StepModel,
    *,
    profile: Profile,
    phase: str,
    dense: Floats,
    head: Floats,
    longest: float,
    unseen: bool,
) -> PhaseError | None:
    errors = []
    refused = 0
    for step, attention_s in _judged(phase, getattr(profile.tables, phase), unseen):
        if step.tokens < len(dense) and step.heads < len(head) and step.longest <= longest:
            measured_s = float(dense[step.tokens] + attention_s + head[step.heads])
            try:
                errors.append(_predicted_s(model, step) / measured_s - 1.0)
            except HardwareError:
                refused += 1
    if not errors:
        return None
    sizes = np.abs(errors) * 100.0
    bias_percent = float(np.mean(errors)) * 100.0
    return PhaseError(
        phase=phase,
        rows=len(errors),
        refused=refused,
        mean_percent=float(sizes.mean()),
        p95_percent=float(np.percentile(sizes, 95)),
        bias_percent=bias_percent,
    )


def _experts(profile: Profile) -> ExpertTimes | None:
    """The experts, shared between the GPUs of one engine, as measured in the profile."""
    return own_experts(experts_of(profile), profile) if profile.tables.experts else None


def _expert_errors(profile: Profile) -> tuple[PhaseError, ...]:
    errors: list[float] = []
    for table in profile.tables.experts:
        most: dict[int, tuple[int, float]] = {}
        for tokens, activated, seconds in lattice_points(table.lattice):
            most[tokens] = (activated, seconds)  # the last one is the largest
        half = _thin_experts(table).lattice
        left = np.array([tokens for tokens in most if tokens not in half.axes[0]], dtype=np.float64)
        experts, measured = np.array([most[int(tokens)] for tokens in left]).T
        errors += (at_points(half, left, experts) / measured - 1.0).tolist()
    if not errors:
        return ()
    sizes = np.abs(errors) * 100.0
    bias = float(np.mean(errors)) * 100.0
    return (
        PhaseError(
            phase=EXPERTS,
            rows=len(errors),
            refused=0,
            mean_percent=float(sizes.mean()),
            p95_percent=float(np.percentile(sizes, 95)),
            bias_percent=bias,
        ),
    )


def _thin_experts(table: ExpertTable) -> ExpertTable:
    lattice = table.lattice
    lines = [set(_every_second(axis)) for axis in lattice.axes]
    return replace(table, lattice=_thin_lattice(lattice, lines))


def _longest_context(profile: Profile) -> float:
    """The context limit of the profile's model in the catalogue; infinite for an unknown model."""
    try:
        return load_llm(profile.stamp.llm).max_context_tokens
    except HardwareError:
        return math.inf


def _predicted_s(model: StepModel, step: _Step) -> float:
    n, total = step.sequences, step.sequences * step.context
    seconds = model.dense_s(step.new, 1 if step.new else 0, n)
    if step.new:
        seconds += model.prefill_attention_s(step.new, step.cached)
    if step.new and n and model.interplay is not None:
        return seconds + model.interplay.mixed_decode_attention_s(n, total, step.new, step.cached)
    return seconds + (_decode_attention_s(model, n, total) if n else 0.0)


def _decode_attention_s(model: StepModel, n: int, total: int) -> float:
    seconds = pieces_s(model.decode_attention(n), total)
    if seconds is None:
        raise HardwareError(f"{total} tokens of context of {n} sequences are outside the step model's range")
    return seconds


def _judged(phase: str, lattices: Sequence[Lattice], unseen: bool) -> Iterator[tuple[_Step, float]]:
    """Yield each measured point once; ``unseen``: only those with a coordinate off the kept lines."""
    lines = _kept_lines(lattices)
    seen = set()
    for lattice in lattices:
        for index in np.argwhere(~np.isnan(lattice.values)).tolist():
            point = tuple(axis[at] for axis, at in zip(lattice.axes, index))
            left_out = not all(value in lines for value, lines in zip(point, lines))
            if point not in seen and (left_out or not unseen):
                seen.add(point)
                yield _step(phase, point), float(lattice.values[tuple(index)])


def _step(phase: str, point: tuple[int, ...]) -> _Step:
    padded = {"decode": (0, 0, *point), "prefill": (*point, 0, 0), "mixed": point}[phase]
    new, cached, sequences, context = padded
    return _Step(new, cached, sequences, context)


def _kept_lines(lattices: Sequence[Lattice]) -> list[set[int]]:
    axes = zip(*(lattice.axes for lattice in lattices))
    return [set(_every_second(sorted(set().union(*lines)))) for lines in axes]


def _every_second(values: Sequence[int]) -> list[int]:
    half = list(values[::2])
    return half if half[-1] == values[-1] else [*half, values[-1]]


def _thin_curve(curve: Curve) -> Curve:
    rows = _every_second(range(len(curve.counts)))
    return Curve(tuple(curve.counts[i] for i in rows), tuple(curve.seconds[i] for i in rows))


def _thin_lattices(lattices: Sequence[Lattice]) -> tuple[Lattice, ...]:
    lines = _kept_lines(lattices)
    return tuple(thin for lattice in lattices if (thin := _thin_lattice(lattice, lines)).values.size)


def _thin_lattice(lattice: Lattice, lines: Sequence[set[int]]) -> Lattice:
    places = [
        [at for at, value in enumerate(axis) if value in lines] for axis, lines in zip(lattice.axes, lines)
    ]
    axes = tuple(tuple(axis[at] for at in some) for axis, some in zip(lattice.axes, places))
    return Lattice(axes, lattice.values[np.ix_(*places)])
