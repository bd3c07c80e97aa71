"""The run of one point, in any process: its numbers, or why it was refused."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hwmodels.errors import HardwareError
from serving.vocabulary.errors import PolicyError, UserError
from traces.errors import TraceError

# Parts of a summary that differ between machines, or only describe sources.
_NOT_MEASURED: Final = ("sim", "estimates", "range_is", "step_time", "code", "seed")
LOW, HIGH = "low", "high"


@dataclass(frozen=True, slots=True)
class PointOutcome:
    """``numbers``: dotted name -> number, all of a summary. ``refused``: why there are none, or empty.

    ``stopped``: what was missed when a rule ended the run, which then has no numbers either; or empty.
    ``step_time``: the kind of the step times' source, such as ``linear``; empty where nobody asked.
    """

    numbers: dict[str, float]
    refused: str = ""
    cpu_s: float = 0.0
    stopped: str = ""
    step_time: str = ""


def outcome_of(words: tuple[str, ...], folder: str = "") -> PointOutcome:
    """Run the point, with results in ``folder`` if given. A user error is also returned as an outcome."""
    from time import process_time

    from servetwin.config.compose.compose import load_config

    began_s = process_time()
    try:
        config = load_config([*words, f"out={folder or 'none'}"], "simulate")
        summary = _into_folder(config) if folder else _summary(config)
    except PolicyError as error:
        return PointOutcome({}, str(error))
    except (UserError, TraceError, HardwareError) as error:
        return PointOutcome({}, str(error))
    return PointOutcome(dict(numbers_in(summary)), cpu_s=process_time() - began_s)


def _summary(config: Any) -> Mapping[str, Any]:
    from servetwin.run.simulate import evaluated

    return evaluated(config)


def _into_folder(config: Any) -> Mapping[str, Any]:
    from servetwin.results.result_folder import ResultFolder
    from servetwin.run.simulate import simulate

    Path(config.out).parent.mkdir(parents=True, exist_ok=True)
    with ResultFolder(config.out, overwrite=True) as folder:
        summary = simulate(config, folder.path)
        folder.commit()
    return summary


def numbers_in(summary: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield ``ttft_ms.p99`` and so on; the ends of its range as ``ttft_ms.p99.low`` and ``.high``."""
    for name, value in summary.items():
        if name == "range":
            yield from _ends(value)
        elif name not in _NOT_MEASURED:
            yield from _numbers(name, value)


def _ends(ranges: Mapping[str, tuple[float, float]]) -> Iterator[tuple[str, float]]:
    for metric, (low, high) in ranges.items():
        yield f"{metric}.{LOW}", float(low)
        yield f"{metric}.{HIGH}", float(high)


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _numbers(f"{name}.{key}", inner)
    elif isinstance(value, int | float):
        yield name, float(value)
