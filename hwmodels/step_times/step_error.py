"""Error of a model's step times by phase: factors on them, and the reasons for them."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from hwmodels.errors import HardwareError

How = Literal["measured runs", "held out", "fitted", "assumed"]
PHASES: Final = ("prefill", "decode", "mixed")
# Best first: a sum counts as its worst part.
_HOWS: Final[tuple[str, ...]] = get_args(How)


@dataclass(frozen=True, slots=True)
class StepError:
    """A real step takes between ``low`` and ``high`` times the model's value.

    ``how``: from whole runs of an engine, from points that the model had not seen, from those it was fitted
    to, or assumed; ``source`` states which, or whose assumption.
    """

    low: float
    high: float
    how: How
    source: str

    def __post_init__(self) -> None:
        if not 0.0 < self.low <= 1.0 <= self.high < float("inf"):
            raise HardwareError(
                f"a step-time error from {self.low} to {self.high} times is not a range: write a low factor "
                "above 0 and up to 1, and a high one of at least 1"
            )
        if self.how not in _HOWS:
            raise HardwareError(f"a step-time error cannot be {self.how!r}: write one of {', '.join(_HOWS)}")

    def beside(self, other: "StepError") -> "StepError":
        """Both errors in the same direction: such errors are systematic, so their sizes add up."""
        if other.low == other.high == 1.0:
            return self
        low = 1.0 / (1.0 / self.low + 1.0 / other.low - 1.0)
        how = max(self.how, other.how, key=_HOWS.index)
        return StepError(low, self.high + other.high - 1.0, how, f"{self.source}; {other.source}")


def off_by(share: float, how: How, source: str, too_slow: float | None = None) -> StepError:
    """The model is up to ``share`` too fast and up to ``too_slow`` (None: the same) too slow.

    The low factor is the inverse of 1 plus what the model is too slow by, so that an error of 1 is a factor
    of 2.
    """
    if min(share, too_slow or 0.0) < 0.0:
        raise HardwareError(f"a step-time error of {share} is negative: write a share such as 0.05")
    return StepError(1.0 / (1.0 + (share if too_slow is None else too_slow)), 1.0 + share, how, source)


@dataclass(frozen=True, slots=True)
class LeastErrors:
    """What runs show of steps by how many sequences decode: no step is less off than that.

    ``anchors``: (sequences, error), ascending; between them by the logarithm, beyond them the nearest.
    ``decode``, ``mixed``: the step model's own errors, which count where they are larger.
    """

    anchors: tuple[tuple[int, StepError], ...]
    decode: StepError
    mixed: StepError

    def at(self, end: Literal["low", "high"]) -> tuple[tuple[int, float], ...]:
        """(Sequences, factor) at that end."""
        return tuple((sequences, getattr(error, end)) for sequences, error in self.anchors)


@dataclass(frozen=True, slots=True)
class StepErrors:
    """Errors of steps with prompts alone, with decodes alone, and with both.

    ``least``: what measured runs show by sequences, if any judge the steps; ``decode`` and ``mixed`` are then
    the largest that they show.
    """

    prefill: StepError
    decode: StepError
    mixed: StepError
    least: LeastErrors | None = None

    def told(self) -> str:
        """Factors by phase, and their reasons."""
        return "; ".join(
            f"{phase} x{error.low:.2f} to x{error.high:.2f}, {error.how}: {error.source}"
            for phase, error in ((phase, getattr(self, phase)) for phase in PHASES)
        )

    def beside(self, others: "StepErrors") -> "StepErrors":
        """Phase by phase (``StepError.beside``)."""
        return StepErrors(*(getattr(self, phase).beside(getattr(others, phase)) for phase in PHASES))


def all_off_by(share: float, how: How, source: str) -> StepErrors:
    """The same error in every phase."""
    error = off_by(share, how, source)
    return StepErrors(error, error, error)


NO_ERROR: Final = all_off_by(0.0, "assumed", "none: the times are exact by definition")
# For values that are declared and not measured. Declared all-reduces of two RTX PRO 6000 turned out 2.5 times
# too fast, NCCL alone twice as fast as vLLM's (docs/contributing/lab/STEP_TIMES.md): a factor of two.
ROUGH_SHARE: Final = 1.0
ROUGH: Final = all_off_by(ROUGH_SHARE, "assumed", "nothing was measured, assumed to be within a factor of 2")
# p95 in percent of the worst of six tables with held-out lines (docs/explanation/STEP_TIMES.md): used if a
# profile was not evaluated, or is used on a rung on which it was not.
UNJUDGED_TABLES: Final = (("prefill", 4.0), ("decode", 6.1))
UNJUDGED_LINES: Final = (("prefill", 8.8), ("decode", 9.4), ("mixed", 16.0))
# For parts of a mixed step that are added because it was not measured. Compared with measured mixed steps
# (three tables of the RTX 4090 and the RTX PRO 6000; chunks of 256 tokens and more, contexts up to 4,096) 19
# of 20 sums are at most 24.5 % too fast (tests/hwmodels/test_step_error.py).
ADDED_PARTS: Final = off_by(
    0.325, "assumed", "mixed steps not measured, parts added: p95 24.5 % too fast where they were measured",
    too_slow=0.0,
)  # fmt: skip


def mixed_of_parts(prefill: StepError, decode: StepError) -> StepError:
    """For added parts: the worse of both phases, plus the error of adding them."""
    how = max(prefill.how, decode.how, key=_HOWS.index)
    worse = StepError(
        min(prefill.low, decode.low), max(prefill.high, decode.high), how, "the worse of prefill and decode"
    )
    return worse.beside(ADDED_PARTS)


def of_percents(p95_percent: Mapping[str, float], how: How, source: str) -> StepErrors:
    """From the 95th percentile of |error| by phase; without ``mixed`` its parts are added.

    p95 and not the mean: a run may stay where the model is worst.
    """

    def one(phase: str) -> StepError:
        percent = p95_percent[phase]
        return off_by(percent / 100.0, how, f"{phase} {how} p95 {percent:.1f} % ({source})")

    prefill, decode = one("prefill"), one("decode")
    mixed = one("mixed") if "mixed" in p95_percent else mixed_of_parts(prefill, decode)
    return StepErrors(prefill, decode, mixed)


def judged_text(p95: Iterable[tuple[str, float, float]]) -> str:
    """(phase, mean, p95) in percent, as written in profiles; ``judged_errors`` reads it back."""
    return ", ".join(f"{phase} {mean:.1f} / {p95:.1f} %" for phase, mean, p95 in p95)


def judged_errors(text: str) -> dict[str, float] | None:
    """p95 in percent by phase from a profile's text; None if prefill or decode was not evaluated."""
    percents = {
        phase: float(p95) for phase, p95 in re.findall(rf"({'|'.join(PHASES)}) [0-9.]+ / ([0-9.]+) %", text)
    }
    return percents if {"prefill", "decode"} <= percents.keys() else None


def all_reduce_errors(
    labels: Iterable[str],
    all_reduce_s: Callable[[int], float],
    dense_s: Callable[[int], float],
    largest: tuple[int, int],
) -> StepErrors:
    """The error added by labelled all-reduces: rough ones, of another engine or of no engine.

    ``largest``: the most tokens of a step with prompts, and of one without. Their share of a step is the
    largest over sizes by powers of two.
    """
    label = next(iter(labels), None)
    if label is None:
        return NO_ERROR
    last_prefill, last_decode = largest

    def share(first: int, last: int) -> float:
        sizes = [1 << power for power in range(first.bit_length() - 1, last.bit_length())]
        return max((all_reduce_s(size) / dense_s(size) for size in sizes if size <= last), default=0.0)

    def error(part: float) -> StepError:
        # Between half of them and twice as much.
        source = f"{part:.0%} of a step is all-reduce within a factor of 2, for it is labelled: {label}"
        return StepError(max(1.0 - part / 2.0, 0.5), 1.0 + part * ROUGH_SHARE, "assumed", source)

    prefill, decode = error(share(256, last_prefill)), error(share(1, last_decode))
    return StepErrors(prefill, decode, max(prefill, decode, key=lambda phase: phase.high))


def catalogue_errors(entry: Mapping[str, Any]) -> StepErrors:
    """Errors of an entry of linear.yaml or linear_composed.yaml, without those of its all-reduces."""
    errors = entry.get("errors_percent")
    if errors is None:
        return ROUGH
    p95 = {phase: float(error["held_out_p95"]) for phase, error in errors.items()}
    off = of_percents(p95, "held out", "linear model on held-out lines")
    composed = entry.get("fitted_profile", {}).get("format") == "aiconfigurator"
    return off.beside(_COMPOSED_OF_0_14 if entry["gpu"] == "a100_80g" else _COMPOSED) if composed else off


def _composed(decode: StepError, prefill: StepError) -> StepErrors:
    return StepErrors(prefill, decode, prefill)


# A model composed of products measured for others (docs/contributing/lab/STEP_TIMES.md, "Composed models").
_COMPOSED: Final = _composed(
    off_by(0.0, "assumed", "composed: 2 to 6 % too slow on the RTX PRO 6000", too_slow=0.06),
    off_by(0.0, "assumed", "composed: 3 to 26 % too slow on the RTX PRO 6000", too_slow=0.26),
)
_COMPOSED_OF_0_14: Final = _composed(
    off_by(0.176, "assumed", "composed: 15 % too fast to 18 % too slow against Vidur's", too_slow=0.18),
    off_by(0.266, "assumed", "composed: 21 % too fast to 18 % too slow against Vidur's", too_slow=0.18),
)
