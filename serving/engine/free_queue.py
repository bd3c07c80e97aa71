"""The queue of free KV blocks: first in, first out; a block keeps its content until it is taken.

Blocks are queued as extents: consecutive blocks of one request's tokens. A request that leaves queues its
last block first, so an extent loses its last blocks first (vLLM 0.19, kv_cache_manager.py:free).
"""

NOBODY = -1
SharedPrefix = tuple[tuple[int, int], ...]


class Extent:
    """Blocks with the full blocks [start, stop) of a request's tokens; owner ``NOBODY``: nothing to find.

    The tokens are those of ``request`` with its ``prefix``. ``owner``: whose content the first block is; the
    index uses it. ``users``: number of requests that hold the blocks; if 0 they are in the free queue,
    between ``ahead`` (taken before them) and ``behind``. ``born``: number of the extent in the order of
    recording; of two copies of a block, the one recorded first is found. Parts of a split extent have the
    same ``born``. ``rest``: the second part of a split extent.
    """

    __slots__ = (
        "ahead", "behind", "born", "owner", "prefix", "request", "rest", "start", "stop", "users",
    )  # fmt: skip

    def __init__(
        self,
        owner: int,
        request: int,
        prefix: SharedPrefix,
        *,
        start: int,
        stop: int,
        users: int,
        born: int,
    ) -> None:
        self.owner = owner
        self.request = request
        self.prefix = prefix
        self.start = start
        self.stop = stop
        self.users = users
        self.born = born
        self.rest: Extent = self
        self.ahead: Extent = self
        self.behind: Extent = self

    def part_from(self, block: int) -> "Extent":
        """The part that has this block, if the extent was split."""
        extent = self
        while extent.stop <= block:
            assert extent.rest is not extent, "an extent became shorter while it was in use"
            extent = extent.rest
        return extent


def blank(blocks: int) -> Extent:
    """An extent of blocks with nothing to find."""
    return Extent(NOBODY, NOBODY, (), start=0, stop=blocks, users=0, born=0)


class FreeQueue:
    """Free blocks as linked extents. ``blocks``: their number; ``ends``: a marker between last and first."""

    __slots__ = ("blocks", "ends")

    def __init__(self, blocks: int) -> None:
        self.ends = blank(0)
        self.blocks = 0
        self.append(blank(blocks))

    def append(self, extent: Extent) -> None:
        """Append an extent at the end."""
        ends = self.ends
        last = ends.ahead
        extent.ahead, extent.behind = last, ends
        last.behind = ends.ahead = extent
        self.blocks += extent.stop - extent.start

    def insert(self, extent: Extent, behind: Extent) -> None:
        """Insert an extent just ahead of ``behind``."""
        ahead = behind.ahead
        extent.ahead, extent.behind = ahead, behind
        ahead.behind = behind.ahead = extent
        self.blocks += extent.stop - extent.start

    def remove(self, extent: Extent) -> None:
        """Remove an extent from its place in the queue."""
        extent.ahead.behind = extent.behind
        extent.behind.ahead = extent.ahead
        self.blocks -= extent.stop - extent.start
