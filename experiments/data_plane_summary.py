"""What loads took and what links carried, for summary.json."""

from statistics import fmean
from typing import Any

from hwmodels.fabric.flow import KINDS
from simcore.data_plane import DataPlane


def data_plane_summary(data_plane: DataPlane) -> dict[str, Any]:
    """``loads``: how many stops got everything, how many did not, seconds from wish to first possible step.

    ``network``: per kind of link the bytes that crossed all of them, by what they were, and the most that one
    of them ever carried, as a share of its rate.
    """
    seconds = [record.seconds for record in data_plane.records if record.whole]
    return {
        "loads": {
            "count": len(seconds),
            "stopped": sum(not record.whole for record in data_plane.records),
            "seconds": {"mean": fmean(seconds), "max": max(seconds)} if seconds else None,
        },
        "network": _network(data_plane),
    }


def _network(data_plane: DataPlane) -> dict[str, Any]:
    fabric, found = data_plane.fabric, dict[str, dict[str, Any]]()
    for number, link in enumerate(data_plane.topology.links):
        entry = found.setdefault(
            link.kind, {"links": 0, "bytes": dict.fromkeys(KINDS, 0.0), "peak_share": 0.0}
        )
        entry["links"] += 1
        entry["peak_share"] = max(entry["peak_share"], fabric.peak_share(number))
        for kind in KINDS:
            entry["bytes"][kind] += fabric.carried_bytes(number, kind)
    return found
