"""How many models a run hosts, how their requests arrive, and which settings contradict each other."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from servetwin.config.ranges import Range
from servetwin.config.trace_config import TraceConfig
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from traces.many import Bursts

MOST_MODELS: Final = 1000
_POSITIVE: Final = Range(low=0, open_low=True)
_RANGES: Final[dict[str, Range]] = {
    "count": Range(low=2, high=MOST_MODELS),
    "zipf": Range(low=0, high=10),
    "rate_per_s": _POSITIVE,
    "gap_cv": Range(low=1e-3, high=1e3),
    "burst_factor": Range(low=1, high=1e6),
    "burst_ramp_s": _POSITIVE,
    "burst_hold_s": _POSITIVE,
    "burst_decay_s": _POSITIVE,
    "quiet_s": _POSITIVE,
    "requests": Range(low=1),
    "duration_s": _POSITIVE,
}
_RATES: Final = ("rate_scale", "utilization", "prefill_share", "peak_share")


@dataclass(frozen=True, slots=True)
class ModelsConfig:
    """The models of a run. ``one``: that of ``model=``; everything else is null.

    ``zipf``: ``count`` models that are copies of ``shapes`` in turns (``NAME`` or ``NAME:TP`` with + between;
    null: of ``model=``), ranked by popularity with exponent ``zipf``, ``rate_per_s`` requests in all (null:
    as many as the trace). Each has its own process: gaps of CV ``gap_cv`` along a rate that now and then
    rises ``burst_factor`` fold within ``burst_ramp_s``, stays for ``burst_hold_s`` and falls within
    ``burst_decay_s``, ``quiet_s`` apart on average. It ends after ``requests`` (null: as many as the trace
    has, or no limit with ``duration_s``) or before ``duration_s``. Only lengths are taken from the trace.
    ``of_trace``: models, arrivals and lengths of the trace; ``count`` and ``shapes`` as before.
    """

    name: str
    count: int | None
    shapes: str | None
    zipf: float | None
    rate_per_s: float | None
    gap_cv: float | None
    burst_factor: float | None
    burst_ramp_s: float | None
    burst_hold_s: float | None
    burst_decay_s: float | None
    quiet_s: float | None
    requests: int | None
    duration_s: float | None

    @property
    def bursts(self) -> "Bursts":
        """Return the arrival process of each model of ``models=zipf``."""
        from traces.many import Bursts  # imports drawing code, which other runs do not need

        rise = (self.burst_factor, self.burst_ramp_s, self.burst_hold_s, self.burst_decay_s)
        return Bursts(*(value for value in (self.gap_cv, *rise, self.quiet_s) if value is not None))


ONE: Final = ModelsConfig("one", *[None] * 12)
_OPTIONAL: Final = ("shapes", "rate_per_s", "requests", "duration_s")
USED: Final = {"one": (), "of_trace": ("count", "shapes"), "zipf": (*_RANGES, "shapes")}


def shapes_of(shapes: str | None, model: str, tp: int) -> tuple[tuple[str, int], ...]:
    """Return (catalogue name, GPUs per replica) of each of ``shapes``; the chosen model's if None."""
    if shapes is None:
        return ((model, tp),)
    return tuple(_shape(word.strip(), shapes, tp) for word in shapes.split("+"))


def _shape(word: str, shapes: str, tp: int) -> tuple[str, int]:
    name, colon, digits = word.partition(":")
    good = digits.isdecimal() and digits.isascii() and 0 < int(digits[:4]) <= 1024 if colon else True
    if not name or not good:
        raise UserError(
            f"models.shapes={shapes} has '{word}': write names of the catalogue with + between, each with "
            "the GPUs of a replica behind it where they are not model.tp, such as "
            "models.shapes=llama3_8b+mistral_24b:2"
        )
    return name, int(digits) if colon else tp


def check_models(models: ModelsConfig, trace: TraceConfig, kind: str) -> None:
    """Refuse settings that are out of range or contradict each other, with a UserError."""
    used = USED.get(models.name)
    if used is None:
        raise UserError(f"models={models.name} is unknown: write one of {', '.join(USED)}")
    if kind == "realexec" and any(tp != 1 for _, tp in shapes_of(models.shapes, "", 1)):
        raise UserError(
            f"models.shapes={models.shapes} has replicas of several GPUs, and a real worker is one: write "
            "names without a number behind them"
        )
    for field in fields(models)[1:]:
        _check_value(models, field.name, used)
    if models.name == "one":
        return
    shapes_of(models.shapes, "", 1)
    rates = [f"trace.{key}" for key in _RATES if getattr(trace, key) is not None]
    if models.rate_per_s is not None and rates:
        raise UserError(
            f"models.rate_per_s and {' and '.join(rates)} both set the arrival rate: write only one of them"
        )


def _check_value(models: ModelsConfig, key: str, used: tuple[str, ...]) -> None:
    value = getattr(models, key)
    if value is None:
        if key in used and key not in _OPTIONAL:
            raise UserError(f"models.{key}=null does not fit models={models.name}: write models.{key}=NUMBER")
        return
    if key not in used:
        instead = "models=zipf" if key != "count" and key != "shapes" else "models=zipf or models=of_trace"
        raise UserError(
            f"models.{key}={value} does not fit models={models.name}: leave it out or write {instead}"
        )
    if key in _RANGES and value not in _RANGES[key]:
        raise UserError(f"models.{key}={value} is out of range: write a number {_RANGES[key]}")
