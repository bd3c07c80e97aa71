"""The ids of a prompt's blocks in JSON: opaque numbers of up to 64 bits, of which only equality counts."""

from array import array
from collections.abc import MutableSequence, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from traces.columns import MOST_ID, PrefixBlocks, opaque_ids
from traces.importers.json_lines import Spot, all_or_none, shown

Ids = MutableSequence[int]


def ids_of(row: dict[str, Any], key: str, spot: Spot) -> Ids | None:
    """The ids under ``key``; None where there are none. Raises TraceError."""
    ids = row.get(key)
    if ids is None:
        return None
    if not isinstance(ids, list):
        raise spot.error(f"{shown(ids)} is not a list", "write one whole number per block", key)
    for at in ids:
        if type(at) is not int or not 0 <= at <= MOST_ID:
            raise spot.error(
                f"{shown(at)} is not a block id", f"write whole numbers from 0 to {MOST_ID}", key
            )
    return array("Q", ids)


def check_count(ids: Ids | None, prompt: int, size: int, *, partial: bool, spot: Spot, key: str) -> None:
    """TraceError unless there is an id for every block of ``size`` tokens; the last, partly filled, may lack.

    partial: whether there may be fewer.
    """
    if ids is None:
        return
    blocks = -(-prompt // size)
    if len(ids) in (blocks, prompt // size) or (partial and len(ids) < blocks):
        return
    raise spot.error(
        f"{len(ids)} ids do not fit {prompt} tokens in blocks of {size}",
        f"write {blocks}" + (" at most" if partial else ", or the size of its blocks as trace.block_tokens="),
        key,
    )


def prefix_of(ids: Sequence[Ids | None], size: int, key: str, file: Path) -> PrefixBlocks | None:
    """The blocks of all rows; None where no row has ids. Ids beyond 63 bits get new ones for all."""
    if not all_or_none(ids, key, file):
        return None
    counts = [len(row) for row in ids if row is not None]
    flat = array("Q")
    for row in ids:
        flat.extend(row or ())
    offsets = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    return PrefixBlocks(size, offsets, opaque_ids(np.array(flat, dtype=np.uint64)))
