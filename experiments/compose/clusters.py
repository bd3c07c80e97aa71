"""Clusters made on request, without an option file of their own.

``cluster=FAMILY_xN`` is N GPUs of one kind and no links; ``cluster=NAME`` or ``NAME_HxG`` (H hosts of G GPUs)
is a cluster of the catalogue with all its links.
"""

import re
from typing import Final

from experiments.config.ranges import MAX_GPUS
from hwmodels.topology.cluster_file import cluster_names, load_cluster

# Family -> catalogue name: each GPU by its own name, and a100 for the 80 GB one.
CLUSTER_FAMILIES: Final = {
    "a100": "a100_80g",
    "a10": "a10",
    "a40": "a40",
    "a100_40g": "a100_40g",
    "a100_80g": "a100_80g",
    "a800": "a800",
    "h100": "h100",
    "h200": "h200",
    "l40s": "l40s",
    "rtx4090": "rtx4090",
    "rtx_pro_6000": "rtx_pro_6000",
    "v100": "v100",
}
_SIZED: Final = re.compile(r"([a-z0-9_]+)_[1-9][0-9]{0,4}x[1-9][0-9]{0,2}")
_NAME: Final = re.compile(r"([a-z0-9_]+)_x([1-9][0-9]{0,5})")


def requested_cluster(name: str) -> dict[str, str | int | None] | None:
    """The keys of ClusterConfig for a name of one of these forms; None for another, or above ``MAX_GPUS``."""
    if name in topology_names() or _SIZED.fullmatch(name):
        return _with_links(name)
    match = _NAME.fullmatch(name)
    if match is None or match[1] not in CLUSTER_FAMILIES or int(match[2]) > MAX_GPUS:
        return None
    gpu, gpus = CLUSTER_FAMILIES[match[1]], int(match[2])
    return {"name": name, "gpu": gpu, "gpus": gpus, "topology": None, "start": "warm"}


def topology_names() -> tuple[str, ...]:
    """The clusters of the catalogue that have links; ``local`` alone has none here, ``local_HxG`` has."""
    return tuple(name for name in cluster_names() if name != "local")


def _with_links(name: str) -> dict[str, str | int | None] | None:
    sized = _SIZED.fullmatch(name)
    if sized is not None and sized[1] not in cluster_names():
        return None
    spec = load_cluster(name)
    if spec.gpus > MAX_GPUS:
        return None
    return {"name": name, "gpu": spec.gpu, "gpus": spec.gpus, "topology": name, "start": "warm"}


def made_names() -> str:
    """What a refusal says may be written beside the clusters that have a file."""
    first, *others = (f"{family}_xN" for family in CLUSTER_FAMILIES)
    return f"{first} (N from 1 to {MAX_GPUS}), {', '.join(others)}, or one with links such as blitz_a"
