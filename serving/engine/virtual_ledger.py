"""KV memory of a replica whose virtual engines have a part of it each: the sum of the parts."""

from collections.abc import Sequence

from serving.engine.kv_ledger import KvLedger


class VirtualLedger(KvLedger):
    """A read and release view: requests get their blocks from the ``parts``."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[KvLedger]) -> None:
        first = parts[0]
        super().__init__(
            sum([one.total_blocks for one in parts]),
            first.block_tokens,
            sum([one.watermark_blocks for one in parts]),
        )
        self._parts = list(parts)

    def _part_of(self, request: int) -> KvLedger | None:
        for part in self._parts:
            if part.held_blocks(request):
                return part
        return None

    @property
    def free_blocks(self) -> int:
        """Blocks that no request holds, in any part."""
        return sum([part.free_blocks for part in self._parts])

    def held_blocks(self, request: int) -> int:
        """Blocks the request holds now; 0 if it holds none."""
        part = self._part_of(request)
        return 0 if part is None else part.held_blocks(request)

    def context_tokens(self, request: int) -> int:
        """Context of a decoding request: prompt plus tokens generated so far."""
        part = self._part_of(request)
        assert part is not None, "a request without blocks does not decode"
        return part.context_tokens(request)

    def decodes(self, request: int) -> bool:
        """Whether the request decodes."""
        part = self._part_of(request)
        return part is not None and part.decodes(request)

    def step_blocks(self) -> int:
        """Blocks that the next decode steps of all parts take."""
        return sum([part.step_blocks() for part in self._parts])

    def release(self, request: int) -> None:
        """Free everything that the request holds."""
        for part in self._parts:
            part.release(request)

    def holders(self) -> tuple[int, ...]:
        """Requests that hold blocks, for invariants and views."""
        return tuple([request for part in self._parts for request in part.holders()])
