"""A sentence about starts of instances, for the console and the page of a run."""

from collections.abc import Mapping
from typing import Any, Final

from servetwin.report.number_text import duration

_NAMES: Final = {
    "first_request": "first request",
    "falls_asleep": "falling asleep",
    "image_pull": "image pull",
    "readiness_probe": "readiness probe",
}
_ALIKE: Final = 2.0  # times; times of starts that differ by less come from other loads, not from other starts
_LEAST_S: Final = 1.0


def start_text(starts: Mapping[str, Any]) -> str:
    """Return the assumed start, the number of starts, median seconds of each term; "" without starts."""
    if not starts or not starts.get("count"):
        return ""
    kind, engine = starts["start"], starts["engine"]
    if kind == "total":
        kind, engine = "declared", "system.instances.start_total_s"
    named = f"instances start as {engine} declares" if kind == "declared" else f"{kind} starts of {engine}"
    counts = ", ".join(f"{times} {name}" for name, times in starts["count"].items())
    if starts["compiled"] or starts["cached"]:
        counts += f", {starts['compiled']} compiled, {starts['cached']} with the compile cache"
    terms = " + ".join(
        f"{_NAMES.get(name, name)} {seconds:.3g}"
        for name, seconds in starts["median_s"].items()
        if seconds and name != "total"
    )
    note = f"; {starts['note']}" if "note" in starts else ""
    return f"{named}: {counts}; median {starts['median_s']['total']:.3g} s = {terms}{note}"


def preparation_s(median_s: Mapping[str, float]) -> float | None:
    """Seconds of a run's median start beside the transfer of parameters; None without a start."""
    if "total" not in median_s:
        return None
    return max(0.0, median_s["total"] - median_s.get("weights", 0.0))


def different_starts(seconds: Mapping[str, float]) -> list[str]:
    """A sentence if the runs that are compared start instances differently. ``seconds``: by name of the run.

    Where parameters come from is no such difference: that is what systems compete in.
    """
    if len(seconds) < 2:
        return []
    quick, slow = (choose(seconds, key=lambda name: seconds[name]) for choose in (min, max))
    if seconds[slow] < max(_ALIKE * seconds[quick], seconds[quick] + _LEAST_S):
        return []
    return [
        f"instances start differently: beside the transfer of parameters a start takes "
        f"{duration(1e3 * seconds[quick])} with {quick} and {duration(1e3 * seconds[slow])} with {slow}; "
        "what differs between the two may be due to that"
    ]
