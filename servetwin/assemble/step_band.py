"""Step times and KV memory of a run's replicas at both ends of their error, and the sources of the band."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from hwmodels.step_times.engine_overhead import EngineOverhead, EngineStepModel
from hwmodels.step_times.scaled_rows import PhaseFactors, ScaledRows
from hwmodels.step_times.step_error import PHASES, ROUGH, StepError, StepErrors
from hwmodels.step_times.unequal_contexts import UnequalContexts
from servetwin.assemble.hardware import Hardware

End = Literal["low", "high"]
ENDS: tuple[End, End] = ("low", "high")
KV_RESTS_ON = ", by how far what vLLM logged was from its arithmetic here (benchmarks.kv_memory)"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBand:
    """The band of one kind of replica: its operations' errors by phase, its engine overhead at both ends.

    ``kv_blocks``: its fewest and most blocks of KV memory; None: exactly what it has. ``unequal``: what
    unequal contexts cost at both ends; None: as measured.
    """

    errors: StepErrors
    low: EngineOverhead
    high: EngineOverhead
    overhead_rests_on: str
    kv_blocks: tuple[int, int] | None = None
    unequal: UnequalContexts | None = None

    @property
    def empty(self) -> bool:
        """Whether both ends equal the middle."""
        exact = all(error.low == error.high == 1.0 for error in self._by_phase().values())
        return exact and self.low == self.high and self.kv_blocks is None and self.unequal is None

    def factors(self, end: End) -> PhaseFactors:
        """Return the factors on the operations, by phase."""
        own = {phase: getattr(error, end) for phase, error in self._by_phase().items()}
        least = self.errors.least
        if least is None:
            return PhaseFactors(**own)
        return PhaseFactors(
            prefill=own["prefill"],
            decode=getattr(least.decode, end),
            mixed=getattr(least.mixed, end),
            least=least.at(end),
        )

    def rests_on(self) -> str:
        """Describe what is known of the error."""
        unequal = "" if self.unequal is None else f"; {self.unequal.told()}"
        return (
            f"{self.errors.told()}; engine overhead: {self.overhead_rests_on}{unequal}{self._kv(KV_RESTS_ON)}"
        )

    def in_short(self) -> str:
        """Describe the same in one line."""
        errors = self._by_phase().values()
        low, high = min(error.low for error in errors), max(error.high for error in errors)
        phases: dict[str, list[str]] = {}
        for phase, error in self._by_phase().items():
            phases.setdefault(error.how, []).append(phase)
        sources = "; ".join(f"{', '.join(names)} {source}" for source, names in phases.items())
        steps = f"step times x{low:.2f} to x{high:.2f} ({sources}{self._few()})"
        unequal = "" if self.unequal is None else f"; {self.unequal.in_short()}"
        return f"{steps}; engine overhead {self.overhead_rests_on}{unequal}{self._kv()}"

    def _few(self) -> str:
        """Describe the band with few decoding sequences, if it is another."""
        least = self.errors.least
        if least is None:
            return ""
        sequences = least.anchors[0][0]
        low, high = (self.factors(end).with_decodes(sequences, getattr(least.decode, end)) for end in ENDS)
        return f"; with {sequences} decoding sequences x{low:.2f} to x{high:.2f}"

    def _kv(self, rests_on: str = "") -> str:
        """Describe the band of the KV memory, if it has one."""
        if self.kv_blocks is None:
            return ""
        low, high = (2 * end / sum(self.kv_blocks) for end in self.kv_blocks)
        return f"; KV memory x{low:.2f} to x{high:.2f}{rests_on}"

    def _by_phase(self) -> dict[str, StepError]:
        return {phase: getattr(self.errors, phase) for phase in PHASES}


def band_of(hardware: Hardware) -> StepBand:
    """Return the model's own errors. A forced profile describes another set-up, so its error is unknown."""
    forced = hardware.errors is None and hardware.profile is not None and bool(hardware.profile.forced)
    low, high, rests_on = hardware.overhead.ends(steps_judged=hardware.errors is not None)
    if hardware.experts is not None:
        rests_on += f"; {hardware.experts.rests_on}"
    errors = hardware.step.errors if hardware.errors is None else hardware.errors
    return StepBand(
        errors=ROUGH if forced else errors,
        low=low,
        high=high,
        overhead_rests_on=rests_on,
        kv_blocks=hardware.kv_ends,
        unequal=hardware.unequal,
    )


def at_end(hardware_of_model: Mapping[str, Hardware], end: End) -> dict[str, Hardware]:
    """Return every model's replicas with all step times at that end; shared kinds stay shared.

    The slow end has the fewest KV blocks, the fast one the most.
    """
    kinds = {id(kind): _of_all_roles(kind, end) for kind in hardware_of_model.values()}
    return {model: kinds[id(kind)] for model, kind in hardware_of_model.items()}


def _of_all_roles(hardware: Hardware, end: End) -> Hardware:
    ended = _at_end(hardware, end)
    return ended if ended.decode is None else replace(ended, decode=_at_end(ended.decode, end))


def _at_end(hardware: Hardware, end: End) -> Hardware:
    step, band = hardware.step, band_of(hardware)
    assert isinstance(step, EngineStepModel), "a run's step times are those of an engine"
    experts = None if hardware.experts is None else hardware.experts.at_end(end)
    factors = band.factors(end)
    unequal = None if band.unequal is None else getattr(band.unequal, end)
    rows = ScaledRows(step, factors, getattr(band, end), unequal)
    blocks = hardware.kv_blocks
    if hardware.kv_ends is not None:
        fewest, most = hardware.kv_ends
        blocks = most if end == "low" else fewest
    return replace(hardware, rows=rows, experts=experts, prompts_factor=factors.prefill, kv_blocks=blocks)


def joined_once(texts: Iterable[str]) -> str:
    """Join the texts of several kinds of replicas, each text once."""
    return " | ".join(dict.fromkeys(texts))
