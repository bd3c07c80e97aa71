"""The state of a request on one worker: its tokens, its KV, and its progress."""

from dataclasses import dataclass, field

import torch

from realexec.model.kv import RequestKV


@dataclass(slots=True, kw_only=True)
class HeldRequest:
    """``last_tokens``: its number of tokens at the end. It decodes once it has sampled a token or joined.

    ``hidden``: of a request that runs layer by layer, one row per position in progress, the input of layer
    ``depth``. ``pins``: number of transfers that write into its memory now. ``dropped``: KV that is no longer
    needed, but whose memory these transfers may still write to.
    """

    tokens: list[int]
    prompt_tokens: int
    last_tokens: int
    kv: RequestKV | None = None
    decoding: bool = False
    hidden: torch.Tensor | None = None
    depth: int = 0
    pins: int = 0
    dropped: list[RequestKV] = field(default_factory=list)

    @property
    def computed(self) -> int:
        """Positions, from the first on, whose KV is on this worker in each of its layers."""
        return 0 if self.kv is None else self.kv.whole_positions

    @property
    def finished(self) -> bool:
        """Whether it has all its tokens."""
        return len(self.tokens) >= self.last_tokens

    def positions(self, layer: int) -> int:
        """How many positions, from the first on, have their KV of this layer on this worker."""
        return 0 if self.kv is None else self.kv.positions(layer)

    def unpin(self) -> None:
        """Note that a transfer into its memory has ended."""
        self.pins -= 1
        self._give_dropped()

    def drop_kv(self) -> None:
        """Drop its KV. Memory that transfers still write to is freed when they have ended."""
        self.decoding, self.hidden, self.depth = False, None, 0
        if self.kv is not None:
            self.dropped.append(self.kv)
            self.kv = None
        self._give_dropped()

    def _give_dropped(self) -> None:
        if not self.pins:
            for kv in self.dropped:
                kv.close()
            self.dropped.clear()
