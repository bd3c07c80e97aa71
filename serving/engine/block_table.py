"""The block table of a request, and the tokens that two requests have in common."""

from serving.engine.free_queue import Extent, SharedPrefix

ALL_TOKENS = 1 << 60
"""More tokens than any request has."""


class BlockTable:
    """The findable blocks of one request: its first ``cached_blocks``, as extents in order.

    ``prefix_tokens``: number of its first tokens that belong to other requests. ``stops``: where the
    request's part of each extent ends; split-off parts follow at ``rest``. ``stored_tokens``: what can be
    found, or could if another request named this one. ``findable_tokens``: what another request may ever look
    for. ``late_tokens``: number of the last stored tokens that are findable only once the request has left.
    ``copied``: since this request began, another one stored some of its tokens.
    """

    __slots__ = (
        "cached_blocks", "copied", "extents", "findable_tokens", "late_tokens", "prefix", "prefix_tokens",
        "request", "stops", "stored_tokens",
    )  # fmt: skip

    def __init__(self, request: int, prefix: SharedPrefix, findable_tokens: int) -> None:
        self.request = request
        self.prefix = prefix
        self.prefix_tokens = prefix[-1][1] if prefix else 0
        self.findable_tokens = findable_tokens
        self.cached_blocks = 0
        self.stored_tokens = 0
        self.late_tokens = 0
        self.copied = False
        self.extents: list[Extent] = []
        self.stops: list[int] = []

    def parts(self) -> list[Extent]:
        """Its extents as they are split now."""
        if len(self.extents) == 1 and self.extents[0].stop == self.stops[0]:
            return self.extents
        extents: list[Extent] = []
        for extent, stop in zip(self.extents, self.stops):
            extents.append(extent)
            while extent.stop < stop:
                assert extent.rest is not extent, "an extent became shorter while it was held"
                extent = extent.rest
                extents.append(extent)
        return extents


def owner_of(request: int, prefix: SharedPrefix, block: int, block_tokens: int) -> int:
    """The owner of a full block of a request; the block's last position determines it."""
    last = block * block_tokens + block_tokens
    for owner, end in prefix:
        if last <= end:
            return owner
    return request


def common_tokens(request: int, prefix: SharedPrefix, other: int, its_prefix: SharedPrefix) -> int:
    """Number of first tokens that two requests have in common."""
    if request == other:
        return ALL_TOKENS
    parts = min(len(prefix), len(its_prefix))
    if prefix[:parts] != its_prefix[:parts]:
        return _common_of_parts(prefix, its_prefix)
    if len(prefix) > parts:
        owner, end = prefix[parts]
        if owner == other:
            return end
    elif len(its_prefix) > parts:
        owner, end = its_prefix[parts]
        if owner == request:
            return end
    return prefix[parts - 1][1] if parts else 0


def _common_of_parts(prefix: SharedPrefix, its_prefix: SharedPrefix) -> int:
    common = 0
    for (owner, end), (its_owner, its_end) in zip(prefix, its_prefix):
        if owner != its_owner:
            break
        common = min(end, its_end)
        if end != its_end:
            break
    return common
