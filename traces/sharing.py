"""What prompts share with earlier ones, by position: identities of a workload as parts of each prompt.

A part (row, end) says that the tokens up to position ``end``, from where the part before it ended, are those
of that earlier row, the first of the workload in which this prefix occurs. The rest of a prompt is its own.
"""

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from traces.columns import PrefixBlocks
from traces.turns import Turns
from traces.workload import Workload

Parts = tuple[tuple[int, int], ...]
Ints = NDArray[np.int64]
_ROWS = 4096
_MOST_SPREAD = 4
"""Largest id over the number of blocks up to which a table by id is kept instead of sorting them."""


def shared_prefixes(workload: Workload) -> Iterator[Parts]:
    """The parts of every prompt, row by row; all empty where the workload has no identities.

    Of block ids one number per block is kept, of turns one part per row.
    """
    if isinstance(workload.prefix, Turns):
        return _of_turns(workload, workload.prefix)
    if isinstance(workload.prefix, PrefixBlocks):
        return _of_blocks(workload, workload.prefix)
    return iter(() for _ in range(len(workload)))


def shared_tokens(workload: Workload) -> Ints:
    """How many of each prompt's first tokens an earlier row has, at the same positions."""
    ends = np.zeros(len(workload), np.int64)
    if isinstance(workload.prefix, Turns):
        return _shared_of_turns(workload, workload.prefix)
    if isinstance(workload.prefix, PrefixBlocks):
        first = _first_rows(workload.prefix)
        for rows in workload.blocks(_ROWS):
            own, _, end = _shared_blocks(workload, workload.prefix, first, rows)
            np.maximum.at(ends, own, end)
    return ends


def _shared_of_turns(workload: Workload, turns: Turns) -> Ints:
    """As far as an earlier row of the stream reaches with its answer; what is common, if row 0 is no turn."""
    order = np.argsort(turns.stream, kind="stable")
    reach = (workload.prompt_tokens + workload.output_tokens)[order]
    begins = np.append(True, np.diff(turns.stream[order]) != 0)[: len(order)]
    number, far = np.cumsum(begins), int(reach.max(initial=0)) + 1
    longest = np.maximum.accumulate(reach + far * number) % far
    common = np.where(number == number[order == 0], 0, turns.common_tokens)
    known = np.maximum(common, np.where(begins, 0, np.append(0, longest)[:-1]))
    shared = np.empty(len(order), np.int64)
    shared[order] = known
    return np.minimum(shared, workload.prompt_tokens)


def named_rows(workload: Workload) -> bytes:
    """Of every row 1 where later rows may be told to share its tokens, else 0."""
    named = np.zeros(len(workload), np.uint8)
    if isinstance(workload.prefix, Turns):
        stream = workload.prefix.stream
        _, last = np.unique(stream[::-1], return_index=True)
        named[:] = 1
        named[len(stream) - 1 - last] = 0
        if workload.prefix.common_tokens:
            named[:1] = 1
    if isinstance(workload.prefix, PrefixBlocks):
        first = _first_rows(workload.prefix)
        own = np.repeat(np.arange(len(workload)), np.diff(workload.prefix.offsets))
        named[first[first != own]] = 1
    return named.tobytes()


def _of_turns(workload: Workload, turns: Turns) -> Iterator[Parts]:
    """A stream is known as far as its rows so far reach; each position is of the first that reached it."""
    known: dict[int, list[tuple[int, int]]] = {}
    common = turns.common_tokens
    for rows in workload.blocks(_ROWS):
        prompt, output = workload.prompt_tokens[rows].tolist(), workload.output_tokens[rows].tolist()
        stream = turns.stream[rows].tolist()
        for row, name, outputs, answered in zip(
            range(rows.start, rows.stop), stream, prompt, output, strict=True
        ):
            parts = known.get(name)
            if parts is None:
                known[name] = parts = [(0, common)] if common and row else []
            yield _cut(parts, outputs)
            if not parts or parts[-1][1] < outputs + answered:
                parts.append((row, outputs + answered))


def _cut(parts: list[tuple[int, int]], end: int) -> Parts:
    """The parts up to position ``end``."""
    if not parts or parts[-1][1] <= end:
        return tuple(parts)
    whole = next(at for at, part in enumerate(parts) if part[1] >= end)
    return (*parts[:whole], (parts[whole][0], end))


def _of_blocks(workload: Workload, prefix: PrefixBlocks) -> Iterator[Parts]:
    """Of each block the first row that has it, and how far into it both certainly agree.

    A block that its first row fills in part is shared that far: what follows there is not in its id.
    """
    first = _first_rows(prefix)
    for rows in workload.blocks(_ROWS):
        own, owner, ends = _shared_blocks(workload, prefix, first, rows)
        last = np.append((owner[1:] != owner[:-1]) | (own[1:] != own[:-1]), True)[: len(owner)]
        pairs = zip(owner[last].tolist(), ends[last].tolist(), strict=True)
        for parts in np.bincount(own[last] - rows.start, minlength=rows.stop - rows.start).tolist():
            yield tuple(islice(pairs, parts))


def _shared_blocks(
    workload: Workload, prefix: PrefixBlocks, first: Ints, rows: slice
) -> tuple[Ints, Ints, Ints]:
    """(row, first row that has it, end position) of every block of ``rows`` that an earlier row has too."""
    begin, end = prefix.offsets[rows.start], prefix.offsets[rows.stop]
    counts = np.diff(prefix.offsets[rows.start : rows.stop + 1])
    own = np.repeat(np.arange(rows.start, rows.stop), counts)
    place = np.arange(begin, end) - np.repeat(prefix.offsets[rows.start : rows.stop], counts)
    owner = first[begin:end]
    starts, ends = (np.floor((place + more) * prefix.block_tokens).astype(np.int64) for more in (0, 1))
    ends = np.minimum(ends, np.minimum(workload.prompt_tokens[own], workload.prompt_tokens[owner]))
    shared = (owner != own) & (ends > starts)
    return own[shared], owner[shared], ends[shared]


def _first_rows(prefix: PrefixBlocks) -> Ints:
    """Of every block the row in which the text up to its end occurs first."""
    counts = np.diff(prefix.offsets)
    row = np.repeat(np.arange(len(prefix)), counts)
    if not len(row):
        return row
    first = _first_places(prefix.ids)
    before = np.append(-1, first[:-1])
    before[prefix.offsets[:-1][counts > 0]] = -1
    if (before != before[first]).any():  # an id alone does not tell what stands before it
        first = _first_places(_chained(prefix, first))
    first_rows: Ints = row[first]
    return first_rows


def _first_places(ids: Ints) -> Ints:
    """Of every block the place of the first one with the same id."""
    if int(ids.max()) > _MOST_SPREAD * len(ids):
        _, ids = np.unique(ids, return_inverse=True)
        ids = ids.reshape(-1)
    place = np.empty(int(ids.max()) + 1, dtype=np.int64)
    place[ids[::-1]] = np.arange(len(ids))[::-1]  # the last written stays
    first_rows: Ints = place[ids]
    return first_rows


def _chained(prefix: PrefixBlocks, ids: Ints) -> Ints:
    """Ids that tell a block and all before it, made place by place from those that tell a block alone.

    ids: below the number of blocks.
    """
    chained, used = np.empty_like(ids), 0
    counts = np.diff(prefix.offsets)
    for place in range(int(counts.max())):
        at = prefix.offsets[:-1][counts > place] + place
        before = chained[at - 1] if place else np.zeros(len(at), np.int64)
        _, which = np.unique(before * len(ids) + ids[at], return_inverse=True)
        chained[at] = used + which.reshape(-1)
        used += int(which.max()) + 1
    return chained
