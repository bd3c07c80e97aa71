"""Invariants of cached KV blocks (invariant 2 of docs/contributing/INVARIANTS.md)."""

from collections.abc import Iterator

from serving.engine.free_queue import NOBODY, Extent
from serving.engine.kv_ledger import KvLedger


def broken(ledger: KvLedger) -> Iterator[str]:
    """Yield a sentence for each broken invariant; reads the cache without updating it."""
    cache = ledger.cache
    if cache is None:
        return
    users: dict[Extent, int] = {}
    for request, table in cache.tables.items():
        parts = table.parts()
        for extent in parts:
            users[extent] = users.get(extent, 0) + 1
        blocks = sum([extent.stop - extent.start for extent in parts])
        # A block that a running decode step fills is already in the cache, but counted after the step.
        most = ledger.held_blocks(request) - ledger.sequence_blocks + ledger.decodes(request)
        if not blocks == table.cached_blocks <= most:
            yield f"request {request} holds {blocks} blocks that are found, its table {table.cached_blocks}"
    shelved = {extent for shelf in cache.index.values() for extent in shelf}
    queued = _queued(cache.queue.ends)
    if sum([extent.stop - extent.start for extent in queued]) != cache.queue.blocks:
        yield "the free queue is as long as its extents"
    if shelved != users.keys() | {extent for extent in queued if extent.owner != NOBODY}:
        yield "what can be found is held, or in the free queue"
    if any(extent.users != users.get(extent, 0) for extent in (*shelved, *queued)):
        yield "the users of blocks are those who hold them"
    shared = sum([(count - 1) * (extent.stop - extent.start) for extent, count in users.items()])
    if shared != cache.shared_blocks:
        yield f"{shared} blocks are held beyond once, {cache.shared_blocks} are counted"
    for shelf in cache.index.values():
        starts = [extent.start for extent in shelf]
        if not starts or starts != sorted(starts):
            yield "an owner's blocks are in order"


def _queued(ends: Extent) -> list[Extent]:
    extents, extent = list[Extent](), ends.behind
    while extent is not ends:
        extents.append(extent)
        extent = extent.behind
    return extents
