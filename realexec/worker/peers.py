"""The other workers of a run, as one worker reads them: where their memory is, and how fast the links are."""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from realexec.memory.arena import Arena
from realexec.transport_registry import AHEAD, ONE_HOST, opened
from realexec.transports.base import Link, PeerLost, Segment, Transport
from realexec.transports.shaped import Paths
from realexec.wire.listener import LOOPBACK


def paths_between(rates: Mapping[str, float], slots: int) -> dict[str, float]:
    """Name the shaped paths of a run, from the rates of ``nic``, ``ssd``, ``pcie`` and ``remote`` in bytes/s.

    Every slot is a host of its own. A kind without a rate runs at the machine's own speed.
    """
    names = {
        "nic": ["nic of host {}, out", "nic of host {}, in"],
        "ssd": ["ssd of host {}"],
        "pcie": ["pcie of host {}"],
    }
    paths = {
        name.format(slot): rates[kind]
        for kind, forms in names.items()
        for name in forms
        for slot in range(slots)
        if kind in rates
    }
    return {**paths, **({"remote store": rates["remote"]} if "remote" in rates else {})}


class Peers:
    """Links to all workers of a run by slot; ``slot`` is this worker's own.

    A worker's address has the transport's address and the start of each region: ``replica``, the GPU's
    parameters, and ``host n``, the parameters of model n in the host's memory.
    """

    def __init__(
        self,
        slot: int,
        arena: Arena,
        *,
        paths: Paths | None,
        transport: str,
        host: str = LOOPBACK,
        memory: Any = None,
    ) -> None:
        """``host``: the address at which peers reach this worker. ``memory``: the memory it computes in."""
        self.slot = slot
        self._transport: Transport = opened(transport, arena, host, memory)
        self._ahead = transport in AHEAD
        self._alone = transport in ONE_HOST  # reads need no action by the peer
        self._paths = paths
        self._limited = frozenset(() if paths is None else paths.handle["shapes"])
        self._addresses: list[Mapping[str, Any]] = []
        self._links: dict[int, Link] = {}
        self._linking = threading.Lock()

    def address(self, regions: Mapping[str, int]) -> dict[str, Any]:
        """Make the address that peers need; ``regions``: where each region begins."""
        return {"transport": self._transport.address(), "regions": dict(regions)}

    def meet(self, addresses: Sequence[Mapping[str, Any]], linked: Callable[[], None] | None = None) -> None:
        """Take the addresses of all workers. Calls ``linked`` once every reachable worker is linked."""
        self._addresses = list(addresses)
        if self._ahead or linked is not None:
            threading.Thread(target=self._link_all, args=(linked,), name="links", daemon=True).start()

    def _link_all(self, linked: Callable[[], None] | None) -> None:
        """Link before the first read. A worker that cannot be reached yet is linked when it is first read."""
        for slot in range(len(self._addresses)):
            if slot != self.slot:
                with suppress(PeerLost, OSError):
                    self._link(slot)
        if linked is not None:
            linked()

    def region(self, slot: int, place: str) -> int:
        """Where a region of a peer begins in its arena."""
        begins: int = self._addresses[slot]["regions"][place]
        return begins

    def read(self, slot: int, segments: Sequence[Segment]) -> None:
        """Copy bytes from a peer's arena into this one. Raises PeerLost."""
        link = self._link(slot)
        names = self._known(f"nic of host {slot}, out", f"nic of host {self.slot}, in")
        try:
            if names and self._paths is not None:
                self._paths.link(link, names).read(segments)
            else:
                link.read(segments)
        except PeerLost:
            self._drop(slot, link)
            raise

    def wait_s(self, slot: int, size_bytes: int) -> float:
        """How long a read of this many bytes may wait for the link's rate limit; inf if it depends on the
        peer, or if there is no link to it yet."""
        if not self._alone or slot not in self._links:
            return math.inf
        names = self._known(f"nic of host {slot}, out", f"nic of host {self.slot}, in")
        return 0.0 if self._paths is None else self._paths.wait_s(names, size_bytes)

    def _link(self, slot: int) -> Link:
        """Return the link to a peer, made by the thread that reads first."""
        with self._linking:
            if slot not in self._links:
                self._links[slot] = self._transport.connect(self._addresses[slot]["transport"])
            return self._links[slot]

    def _drop(self, slot: int, link: Link) -> None:
        """Close a link that failed; the next read connects again."""
        with self._linking:
            if self._links.get(slot) is link:
                del self._links[slot]
        with suppress(PeerLost, OSError):
            link.close()

    def carry(self, name: str, size_bytes: int) -> None:
        """Delay the caller for bytes that came over a path other than a peer's link, if it has a rate."""
        if self._paths is not None and self._known(name):
            self._paths.passage([name]).begin().carry(size_bytes)

    def _known(self, *names: str) -> list[str]:
        """Select the paths that have a rate limit."""
        return [name for name in names if name in self._limited]

    def close(self) -> None:
        """Close all links and the transport."""
        for link in list(self._links.values()):
            with suppress(PeerLost, OSError):
                link.close()
        self._transport.close()
