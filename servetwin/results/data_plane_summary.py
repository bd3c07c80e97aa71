"""Durations of loads and traffic on links, for summary.json."""

from statistics import fmean
from typing import Any, Final

from hwmodels.fabric.flow import KINDS
from simcore.data_plane.data_plane import DataPlane

_TIERS: Final = {"replica": "gpu", "host": "host", "ssd": "ssd", "remote": "remote"}  # by kind of the source


def data_plane_summary(data_plane: DataPlane, span_s: float) -> dict[str, Any]:
    """``loads``: targets that received everything, targets that did not, seconds from request to first
    possible step, and bytes loaded by their source (``gpu``: from other replicas).

    ``network``: per kind of link, bytes over all its links by kind of content, the peak of any one link as a
    share of its rate, and the bytes as a share of what could be carried in ``span_s``: by all of its links
    together, and by the link of which this share is largest.
    """
    seconds = [record.seconds for record in data_plane.records if record.fully_loaded]
    by_tier = dict.fromkeys(_TIERS.values(), 0)
    for record in data_plane.records:
        by_tier[_TIERS[record.source]] += record.size_bytes
    return {
        "loads": {
            "count": len(seconds),
            "stopped": sum(not record.fully_loaded for record in data_plane.records),
            "seconds": {"mean": fmean(seconds), "max": max(seconds)} if seconds else None,
            "bytes_by_tier": by_tier,
        },
        "network": _network(data_plane, span_s),
    }


def _network(data_plane: DataPlane, span_s: float) -> dict[str, Any]:
    fabric, links, could = data_plane.fabric, dict[str, dict[str, Any]](), dict[str, float]()
    for number, link in enumerate(data_plane.topology.links):
        entry = links.setdefault(
            link.kind,
            {"links": 0, "bytes": dict.fromkeys(KINDS, 0.0), "peak_share": 0.0, "max_share": 0.0},
        )
        entry["links"] += 1
        entry["peak_share"] = max(entry["peak_share"], fabric.peak_share(number))
        carried_bytes, could_bytes = 0.0, link.rate_bytes_per_s * span_s
        for kind in KINDS:
            size_bytes = fabric.carried_bytes(number, kind)
            entry["bytes"][kind] += size_bytes
            carried_bytes += size_bytes
        if could_bytes:
            entry["max_share"] = max(entry["max_share"], carried_bytes / could_bytes)
        could[link.kind] = could.get(link.kind, 0.0) + could_bytes
    for kind, entry in links.items():
        carried = sum(entry["bytes"].values())
        entry["mean_share"] = carried / could[kind] if could[kind] else 0.0
    return links
