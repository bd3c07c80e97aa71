"""The queue of free KV blocks: first in, first out, and a block keeps what it holds until it is taken.

Blocks stand in it as extents: blocks of one owner's content that follow each other. A request that leaves
queues its last block first, so an extent loses its last blocks first (vLLM 0.19, kv_cache_manager.py:free).
"""

NOBODY = -1


class Extent:
    """Blocks that hold the full blocks [start, stop) of ``owner``'s tokens; of ``NOBODY``: nothing to find.

    ``users``: requests that hold them; without any they are in the free queue, between ``ahead`` (taken
    before them) and ``behind``. ``born``: of two copies of a block the one noted first is found. ``rest``:
    where an extent was split, its second part.
    """

    __slots__ = ("ahead", "behind", "born", "owner", "rest", "start", "stop", "users")

    def __init__(self, owner: int, start: int, stop: int, users: int, born: int) -> None:
        self.owner = owner
        self.start = start
        self.stop = stop
        self.users = users
        self.born = born
        self.rest: Extent = self
        self.ahead: Extent = self
        self.behind: Extent = self


class FreeQueue:
    """``blocks`` of all extents in it. ``ends`` is behind the last of them and ahead of the first."""

    __slots__ = ("blocks", "ends")

    def __init__(self, blocks: int) -> None:
        self.ends = Extent(NOBODY, 0, 0, 0, 0)
        self.blocks = 0
        self.append(Extent(NOBODY, 0, blocks, 0, 0))

    def append(self, extent: Extent) -> None:
        """Behind all others."""
        self.insert(extent, self.ends)

    def insert(self, extent: Extent, behind: Extent) -> None:
        """Just ahead of ``behind``."""
        ahead = behind.ahead
        extent.ahead, extent.behind = ahead, behind
        ahead.behind = behind.ahead = extent
        self.blocks += extent.stop - extent.start

    def remove(self, extent: Extent) -> None:
        """From wherever it stands."""
        extent.ahead.behind = extent.behind
        extent.behind.ahead = extent.ahead
        self.blocks -= extent.stop - extent.start
