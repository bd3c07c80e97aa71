"""A sentence about starts of instances, for the console and the page of a run."""

from collections.abc import Mapping
from typing import Any, Final

_NAMES: Final = {
    "first_request": "first request",
    "falls_asleep": "falling asleep",
    "image_pull": "image pull",
    "readiness_probe": "readiness probe",
}


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
