"""Clusters made on request: ``cluster=FAMILY_xN`` is N GPUs of one kind, without a file of its own."""

import re
from typing import Final

from experiments.ranges import MAX_GPUS

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
_NAME: Final = re.compile(r"([a-z0-9_]+)_x([1-9][0-9]{0,5})")


def requested_cluster(name: str) -> dict[str, str | int] | None:
    """The keys of ClusterConfig for ``FAMILY_xN``; None for another form, or N above ``MAX_GPUS``."""
    match = _NAME.fullmatch(name)
    if match is None or match[1] not in CLUSTER_FAMILIES or int(match[2]) > MAX_GPUS:
        return None
    return {"name": name, "gpu": CLUSTER_FAMILIES[match[1]], "gpus": int(match[2])}


def made_names() -> str:
    """What a refusal says may be written beside the clusters that have a file."""
    first, *others = (f"{family}_xN" for family in CLUSTER_FAMILIES)
    return f"{first} (N from 1 to {MAX_GPUS}), {', '.join(others)}"
