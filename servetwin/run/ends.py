"""Evaluate a run at both ends of its error too: two more runs of the loop with the same arrivals.

Step times are all at their low or all at their high end, and KV memory at the end that is as kind or unkind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from hwmodels.errors import HardwareError
from servetwin.assemble.build import prototypes_of, replicas_of
from servetwin.assemble.lengths import limits_of
from servetwin.assemble.step_band import ENDS, End, StepBand, at_end, band_of, joined_once
from servetwin.config.config import NO_SERIES
from servetwin.results.ranges import NOT_AN_INTERVAL, ranges_of
from servetwin.run.prepared import Prepared
from serving.vocabulary.errors import UserError

RUNS: Final = 1 + len(ENDS)
# High over low of mean TTFT from which a run counts as near saturation: its errors alone make it 1.3.
WIDE: Final = 2.0
# Runs the loop and returns its summary. The number is the end's place, 1 or 2, for the progress report.
Loop = Callable[[Prepared, int], Mapping[str, Any]]


def range_section(prepared: Prepared, summary: Mapping[str, Any], loop: Loop) -> dict[str, Any]:
    """Return the range keys to add to the run's summary.

    Of the runs at the ends only the numbers of ``servetwin.results.ranges`` are kept. Their policies
    estimate as in the run itself: from the step-time model, without its error.
    """
    bands = bands_of(prepared)
    short = joined_once(band.in_short() for band in bands)
    front_end = prepared.front_end.ends()[-1]
    if prepared.front_end.exists:
        short += f"; front end {front_end}"
    if prepared.config.system.elastic:
        short += "; the system scales, so the ends need not bound what lies between them"
    source = {
        "range_rests_on": f"{joined_once(band.rests_on() for band in bands)}; front end: {front_end}",
        "range_in_short": short,
        "range_is": NOT_AN_INTERVAL,
    }
    runs = [summary]
    if prepared.front_end.exists or not all(band.empty for band in bands):
        for place, end in enumerate(ENDS, start=1):
            try:
                quiet = replace(prepared, config=replace(prepared.config, series=NO_SERIES))
                runs.append(loop(prepared_at_end(quiet, end), place))
            except (UserError, HardwareError) as error:
                return {
                    "range": {},
                    "range_refused": f"the run at the {end} end was refused: {error}",
                    **source,
                }
    ranges = ranges_of(runs)
    if near_saturation(ranges):
        source["range_in_short"] += f"; {turning_point(prepared, ranges)}"
    return {"range": ranges, **source}


def near_saturation(ranges: Mapping[str, list[float]]) -> bool:
    """Return whether a small error of the steps decides how long requests wait."""
    low, high = ranges.get("ttft_ms.mean", (1.0, 1.0))
    return low > 0 and high / low > WIDE


def turning_point(prepared: Prepared, ranges: Mapping[str, list[float]]) -> str:
    """Return the sentence that names the rate at which waiting begins."""
    low, high = ranges["throughput.req_per_s"]
    if prepared.config.trace.clients is not None:
        return "near saturation: the error of the steps decides how long requests wait"
    return (
        "near saturation: the error of the steps decides how long requests wait; from "
        f"{low:.3g} requests/s on they wait at the high end, and {high:.3g} were served at the low end"
    )


def bands_of(prepared: Prepared) -> list[StepBand]:
    """Return one step-time band for each kind of replica."""
    every = prepared.hardware_of_model.values()
    kinds = {id(kind): kind for model in every for kind in (model, model.of_role("decode"))}
    return [band_of(kind) for kind in kinds.values()]


def prepared_at_end(prepared: Prepared, end: End) -> Prepared:
    """Return the run with step times and KV memory of that end, and the same requests.

    With other memory, an output that would have filled it ends elsewhere.
    """
    hardware = at_end(prepared.hardware_of_model, end)
    low, high, _ = prepared.front_end.ends()
    ended = replace(prepared, hardware_of_model=hardware, front_end=low if end == "low" else high)
    config = prepared.config
    if all(kind.kv_ends is None for kind in hardware.values()):
        return ended
    limits = limits_of(config, prepared.workload, prototypes_of(config, hardware))
    return replace(ended, replicas=replicas_of(config, hardware, prepared.start), limits=limits)
