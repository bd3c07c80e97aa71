"""The other workers of a run as one of them sees them: where their memory is, and how fast it may be read."""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from realexec.memory.arena import Arena
from realexec.transports.base import Link, PeerLost, Segment, Transport
from realexec.transports.registry import AHEAD, ONE_HOST, opened
from realexec.transports.shaped import Paths
from realexec.wire.listener import LOOPBACK


def paths_between(rates: Mapping[str, float], slots: int) -> dict[str, float]:
    """The paths of a run by name, from the rates of ``nic``, ``ssd``, ``pcie`` and ``remote`` in bytes/s.

    Every slot is a host of its own. A kind that has no rate is as fast as the machine.
    """
    names = {
        "nic": ["nic of host {}, out", "nic of host {}, in"],
        "ssd": ["ssd of host {}"],
        "pcie": ["pcie of host {}"],
    }
    found = {
        name.format(slot): rates[kind]
        for kind, forms in names.items()
        for name in forms
        for slot in range(slots)
        if kind in rates
    }
    return {**found, **({"remote store": rates["remote"]} if "remote" in rates else {})}


class Peers:
    """Slot ``slot`` of them is this worker itself.

    An address has the transport's, and where the regions begin that all have: ``replica``, the GPU's
    parameters, and ``host n``, those of model n in the memory of the host.
    """

    def __init__(
        self,
        slot: int,
        arena: Arena,
        paths: Paths | None,
        transport: str,
        host: str = LOOPBACK,
        memory: Any = None,
    ) -> None:
        """``host``: the address at which peers reach this worker. ``memory``: where it computes."""
        self.slot = slot
        self._transport: Transport = opened(transport, arena, host, memory)
        self._ahead = transport in AHEAD
        self._alone = transport in ONE_HOST  # reads without a peer's doing
        self._paths = paths
        self._addresses: list[Mapping[str, Any]] = []
        self._links: dict[int, Link] = {}
        self._linking = threading.Lock()

    def address(self, regions: Mapping[str, int]) -> dict[str, Any]:
        """What the others need; ``regions``: where each begins."""
        return {"transport": self._transport.address(), "regions": dict(regions)}

    def meet(self, addresses: Sequence[Mapping[str, Any]], linked: Callable[[], None] | None = None) -> None:
        """All workers are there. ``linked`` is told when there is a link to each."""
        self._addresses = list(addresses)
        if self._ahead or linked is not None:
            threading.Thread(target=self._link_all, args=(linked,), name="links", daemon=True).start()

    def _link_all(self, linked: Callable[[], None] | None) -> None:
        """Before the first read; who is not there yet, or gone, is linked to when it is read."""
        for slot in range(len(self._addresses)):
            if slot != self.slot:
                with suppress(PeerLost, OSError):
                    self._link(slot)
        if linked is not None:
            linked()

    def region(self, slot: int, place: str) -> int:
        """Where a region of a peer begins."""
        begins: int = self._addresses[slot]["regions"][place]
        return begins

    def read(self, slot: int, segments: Sequence[Segment]) -> None:
        """Bring bytes of a peer's arena. Raises PeerLost."""
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
        """How long so many bytes of a peer may take to come; inf where that is the peer's to say, or nobody
        has read from it yet."""
        if not self._alone or slot not in self._links:
            return math.inf
        names = self._known(f"nic of host {slot}, out", f"nic of host {self.slot}, in")
        return 0.0 if self._paths is None else self._paths.wait_s(names, size_bytes)

    def _link(self, slot: int) -> Link:
        """One for each peer, whichever thread reads first."""
        with self._linking:
            if slot not in self._links:
                self._links[slot] = self._transport.connect(self._addresses[slot]["transport"])
            return self._links[slot]

    def _drop(self, slot: int, link: Link) -> None:
        """The next read connects anew."""
        with self._linking:
            if self._links.get(slot) is link:
                del self._links[slot]
        with suppress(PeerLost, OSError):
            link.close()

    def carry(self, name: str, size_bytes: int) -> None:
        """So many bytes have come by a path that is no link to a peer: they are as late as it is slow."""
        if self._paths is not None and self._known(name):
            self._paths.passage([name]).begin().carry(size_bytes)

    def _known(self, *names: str) -> list[str]:
        """Those of these paths that have a rate."""
        shapes = {} if self._paths is None else self._paths.handle["shapes"]
        return [name for name in names if name in shapes]

    def close(self) -> None:
        """Nothing is read any more."""
        for link in list(self._links.values()):
            with suppress(PeerLost, OSError):
                link.close()
        self._transport.close()
