"""The RDMA device: in this process if it can load pyverbs, else in a helper of the system's interpreter.

The helper process maps the arena too, so bytes arrive directly in it. Calls go over one socket per pair.
"""

import ctypes
import json
import mmap
import os
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from realexec.memory.arena import Arena
from realexec.system.devices import SYS
from realexec.system.parent_exit import end_with_parent
from realexec.transports.base import Segment
from realexec.verbs import package
from realexec.verbs.package import PORT, devices, verbs
from realexec.verbs.pair import DESCRIPTORS, Broken, Ended, Pair, PairRefused
from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, FrameLimits

# An RDMA device with a registered arena, and queue pairs that are made before any peer connects.

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


LIMITS: Final = FrameLimits(head_bytes=4096, payload_bytes=16 << 20)
_SEGMENT: Final = struct.Struct("!3Q")
_ERRORS: Final = {"PairRefused": PairRefused, "Broken": Broken, "Ended": Ended}
# As for a worker: the first line of standard input holds the parameters; the pipe closes with the parent.
_BOOT: Final = (
    "import json, sys; start = json.loads(sys.stdin.buffer.readline()); sys.path[:0] = start['path']; "
    "from realexec.verbs.helper import main; main(start)"
)


def device_of(arena: Arena) -> Any:
    """Return a `Device` for the arena, or an object with the same methods."""
    if package.here():
        return _OwnDevice(arena)
    return RemoteDevice(arena)


class _OwnDevice(Device):
    """The device with an arena of this process, whose mapping stays while the device uses it."""

    def __init__(self, arena: Arena) -> None:
        self._mapped = (ctypes.c_char * arena.size_bytes).from_buffer(arena.buffer)
        super().__init__(ctypes.addressof(self._mapped), arena.size_bytes)


class RemoteDevice:
    """The device in a helper process, which ends with this process."""

    def __init__(self, arena: Arena) -> None:
        self._control, theirs = socket.socketpair()
        descriptors = (arena.descriptor, theirs.fileno())
        self._process = subprocess.Popen(
            [str(package.SYSTEM_PYTHON), "-c", _BOOT], stdin=subprocess.PIPE, pass_fds=descriptors
        )
        theirs.close()
        start = {"path": sys.path, "parent": os.getpid(), "arena": descriptors[0], "control": descriptors[1],
                 "size_bytes": arena.size_bytes}  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(start).encode() + b"\n")
        self._process.stdin.flush()
        answer = Channel(self._control, LIMITS).receive()[0]
        if "error" in answer:
            raise OSError(answer["error"])
        self._told: dict[str, int] = answer
        self._lock = threading.Lock()

    def told(self) -> dict[str, int]:
        """See `Device`."""
        return dict(self._told)

    def pair(self) -> "RemotePair":
        """See `Device`."""
        ours, theirs = socket.socketpair()
        try:
            with self._lock:
                socket.send_fds(self._control, [b"p"], [theirs.fileno()])
        except OSError as error:
            ours.close()
            raise Broken(f"the process with the device has ended: {error}") from None
        finally:
            theirs.close()
        return RemotePair(Channel(ours, LIMITS))

    def give(self, pair: "RemotePair") -> None:
        """See `Device`."""
        pair.close()

    def close(self) -> None:
        """See `Device`. The queues end with the helper process."""
        self._control.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class RemotePair:
    """A `Pair` of the helper process; each call waits for its answer."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def renew(self) -> dict[str, Any]:
        """See `Pair`."""
        answer: dict[str, Any] = self._ask({"do": "renew"})["told"]
        return answer

    def join(self, peer: dict[str, Any]) -> None:
        """See `Pair`."""
        self._ask({"do": "join", "peer": peer})

    def greet(self, ended: int) -> None:
        """See `Pair`."""
        self._ask({"do": "greet"}, ended=ended)

    def read(self, segments: Sequence[Segment], begins: int, key: int, ended: int) -> None:
        """See `Pair`."""
        packed = b"".join(_SEGMENT.pack(*segment) for segment in segments)
        self._ask({"do": "read", "begins": begins, "key": key}, packed, ended)

    def close(self) -> None:
        """Close the socket; the helper process then returns the pair to its device."""
        self._channel.close()

    def _ask(self, head: dict[str, Any], packed: bytes = b"", ended: int | None = None) -> dict[str, Any]:
        try:
            self._channel.send(head, packed)
            if ended is not None and not _answered(self._channel, ended):
                self._channel.send({"do": "stop"})
            answer, _ = self._channel.receive()
        except ChannelClosed as error:
            raise Broken(f"the process with the device has ended: {error}") from None
        if "error" in answer:
            raise _ERRORS[answer["error"]](answer["why"])
        return answer


def _answered(channel: Channel, ended: int) -> bool:
    """Wait for an answer; False if ``ended`` became readable first."""
    if ended < 0:
        return False
    watch = select.poll()
    for descriptor in (channel.fileno(), ended):
        watch.register(descriptor, select.POLLIN)
    return channel.fileno() in {descriptor for descriptor, _ in watch.poll()}


def main(start: dict[str, Any]) -> None:
    """Run the helper process: one thread per pair, until the other side closes its socket."""
    end_with_parent(start["parent"], lifeline=0)
    control = socket.socket(fileno=start["control"])
    mapped = mmap.mmap(start["arena"], start["size_bytes"])
    channel = Channel(control, LIMITS)
    try:
        held = (ctypes.c_char * start["size_bytes"]).from_buffer(mapped)
        device = Device(ctypes.addressof(held), start["size_bytes"])
    except Exception as error:
        channel.send({"error": f"the RDMA device cannot be used: {error}"})
        return
    channel.send(dict(device.told()))
    while True:
        received, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not received:
            os._exit(0)  # threads may be waiting for peers
        connection = socket.socket(fileno=descriptors[0])
        threading.Thread(target=_serve, args=(device, Channel(connection, LIMITS)), daemon=True).start()


def _serve(device: Device, channel: Channel) -> None:
    """Carry out requests for one pair until the other side closes it."""
    pair = device.pair()
    with suppress(ChannelClosed):
        while True:
            head, packed = channel.receive()
            if head["do"] == "stop":  # it has ended the call under way, or came after that call
                continue
            try:
                answer = _carried_out(pair, head, packed, channel.fileno())
            except (PairRefused, Broken, Ended) as error:
                answer = {"error": type(error).__name__, "why": str(error)}
            except Exception as error:
                answer = {"error": "Broken", "why": f"{type(error).__name__}: {error}"}
            channel.send(answer)
    channel.close()
    device.give(pair)


def _carried_out(pair: Pair, head: dict[str, Any], packed: bytes, ended: int) -> dict[str, Any]:
    match head["do"]:
        case "renew":
            return {"told": pair.renew()}
        case "join":
            pair.join(head["peer"])
        case "greet":
            pair.greet(ended)
        case "read":
            segments = [Segment(*numbers) for numbers in _SEGMENT.iter_unpack(packed)]
            pair.read(segments, head["begins"], head["key"], ended)
    return {}
