"""An RDMA device with a registered arena, and queue pairs that are made before any peer connects."""

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from realexec.system.devices import SYS
from realexec.verbs.package import PORT, devices, verbs
from realexec.verbs.pair import DESCRIPTORS, Broken, Pair

# Made at start: a worker of a chain reads from one peer and is read by one or two. More follow on demand.
POOL: Final = 4
CLOSE_S: Final = 5.0
_ROCE_V2: Final = "RoCE v2"
_ON_IPV4: Final = "0000:0000:0000:0000:0000:ffff"


@dataclass(frozen=True, slots=True)
class Port:
    """The port that is used. ``gid``, with its index in the port's table, is this end's address."""

    number: int
    gid: str
    gid_index: int
    lid: int
    mtu: int


class Device:
    """An RDMA device with memory at ``address`` of this process registered. It is the first one with a port
    that is up, unless the environment names one (``SERVETWIN_RDMA_DEVICE``)."""

    def __init__(self, address: int, size_bytes: int) -> None:
        v = verbs()
        self.begins: int = address
        self.context, self.port = _opened()
        self.domain = v.PD(self.context)
        memory = v.e.IBV_ACCESS_LOCAL_WRITE | v.e.IBV_ACCESS_REMOTE_READ
        self._memory = v.MR(self.domain, size_bytes, memory, address=address)
        # Access of queue pairs: peers still cannot write into the memory, and a greeting has no bytes.
        self.access: int = memory | v.e.IBV_ACCESS_REMOTE_WRITE
        self.key: int = self._memory.rkey
        self.own_key: int = self._memory.lkey
        self.most_reads: int = max(1, int(self.context.query_device().max_qp_rd_atom))
        self._changed = threading.Condition()
        self._out = 0
        self._closed = False
        self._pool = [Pair(self) for _ in range(POOL)]

    def told(self) -> dict[str, int]:
        """Return what a reader of this memory needs to know."""
        return {"begins": self.begins, "key": self.key}

    def pair(self) -> Pair:
        """Return an unused pair; make one if there is none. Raises Broken after `close`."""
        with self._changed:
            if self._closed:
                raise Broken("the transport was closed")
            self._out += 1
            return self._pool.pop() if self._pool else Pair(self)

    def give(self, pair: Pair) -> None:
        """Take back a pair that is no longer used; drop it if it cannot be renewed."""
        renewed = []
        with suppress(verbs().PyverbsError):
            pair.renew()
            renewed.append(pair)
        with self._changed:
            self._out -= 1
            self._pool += renewed
            self._changed.notify_all()

    def close(self) -> None:
        """Destroy all queues once no thread uses them; then no peer reads the memory any more."""
        with self._changed:
            self._closed = True
            if not self._changed.wait_for(lambda: not self._out, CLOSE_S):
                return  # a thread is still in a call of a pair; the process's end frees all
        for part in (*self._pool, self._memory, self.domain, self.context):
            part.close()


def _opened() -> tuple[Any, Port]:
    v = verbs()
    names = devices()
    for name in names:
        with DESCRIPTORS:
            context = v.Context(name=name)
        attributes = context.query_port(PORT)
        if attributes.state == v.e.IBV_PORT_ACTIVE:
            index = _gid_index(context, name, attributes.gid_tbl_len)
            gid = context.query_gid(PORT, index).gid
            return context, Port(PORT, gid, index, attributes.lid, int(attributes.active_mtu))
        context.close()
    raise OSError(f"no RDMA device has a port that is up ({', '.join(names)})")


def _gid_index(context: Any, device: str, entries: int) -> int:
    """Return the index of RoCE version 2 with an IPv4 address, which routers carry; first on InfiniBand."""
    for index in range(entries):
        try:
            gid = context.query_gid(PORT, index).gid
        except verbs().PyverbsError:
            continue  # an empty entry
        if gid.startswith(_ON_IPV4) and _kind(device, index) in (_ROCE_V2, ""):
            return index
    return 0


def _kind(device: str, index: int) -> str:
    path = SYS / "class" / "infiniband" / device / "ports" / str(PORT) / "gid_attrs" / "types" / str(index)
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
