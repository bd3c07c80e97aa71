"""Reads by `torch.distributed`: the peer sends from the memory it computes in, and this side receives into
its own.

``nccl`` connects GPUs, one worker on each. UNTESTED: no machine with two GPUs has run it. ``gloo`` runs the
same code between CPUs; the tests use it. Each connection has a channel to the peer's listener, for read
requests, and a group of two. The two set up their group over that channel. So the only ports open to
processes that have not proved the secret are those of Gloo and NCCL, whose traffic is not encrypted.
"""

import importlib.util
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

from realexec.memory.arena import Arena
from realexec.transports.base import PeerLost, Segment, check_segments
from realexec.transports.peer_listener import ListeningTransport, connect
from realexec.transports.read_requests import ConnectionPool, Part, checked_parts, parts_of, request_read
from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, FrameLimits, ProtocolError
from realexec.wire.listener import LOOPBACK

# A `torch.distributed` store with which two processes set up their group, over a channel they already have.
# The stores that `torch.distributed` brings listen on a port without a secret, or need a shared folder.


def pair_store(channel: Channel) -> Any:
    """Return a `torch.distributed.Store` for one end of a channel, which then carries nothing else."""
    from torch import distributed

    torch_names: Any = distributed  # of those that torch offers, its types do not list this one

    class PairStore(torch_names.Store):  # type: ignore[misc]
        """A key-value store. A value that one end sets reaches the other end when that end waits for it."""

        def __init__(self) -> None:
            super().__init__()
            self._known: dict[str, bytes] = {}

        def set(self, key: str, value: Any) -> None:
            self._known[key] = value.encode() if isinstance(value, str) else bytes(value)
            channel.send({"type": "set", "key": key, "value": self._known[key].hex()})

        def get(self, key: str) -> bytes:
            while key not in self._known:
                head, _ = channel.receive()
                if head.get("type") != "set":
                    raise ProtocolError("a peer sent an unexpected message before its group was made")
                self._known[str(head["key"])] = bytes.fromhex(str(head["value"]))
            return self._known[key]

        def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
            for key in keys:
                self.get(key)

        def check(self, keys: Sequence[str]) -> bool:
            return all(key in self._known for key in keys)

        def set_timeout(self, timeout: timedelta) -> None:
            """Do nothing: the channel has its own timeout."""

    return PairStore()


NCCL: Final = "nccl"
GLOO: Final = "gloo"
# A read request lists segments in the payload, 16 bytes each; messages that set up a group are shorter.
LIMITS: Final = FrameLimits(head_bytes=1 << 16, payload_bytes=16 << 20)
# Largest message of a group. Small segments share a message, which takes a copy on each side.
CHUNK_BYTES: Final = 16 << 20
# Timeout while a peer sends nothing. A busy peer still sends: its threads need a processor only briefly.
SILENCE: Final = timedelta(seconds=10)
_SERVING, _READING = 0, 1
ONE_GPU: Final = "both workers are on one GPU, and NCCL connects different ones"
# Device files of NVIDIA's driver on Linux, and on Linux within Windows.
_DRIVERS: Final = ("/dev/nvidiactl", "/dev/dxg")


def missing(backend: str) -> str | None:
    """Return why this machine cannot use the backend; None if it can. Imports nothing."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed: write `pip install torch`"
    if backend == NCCL and not any(map(os.path.exists, _DRIVERS)):
        return "NCCL moves bytes between GPUs, and there is no NVIDIA driver"
    return None


def missing_between(backend: str, device: str) -> str | None:
    """Return why two workers of this machine, each computing on ``device``, cannot use the backend."""
    if (lack := missing(backend)) is not None or backend != NCCL:
        return lack
    kind, _, number = device.partition(":")
    if kind != "cuda":
        return "NCCL moves bytes between GPUs, and workers compute on the CPU: write device=cuda"
    import torch

    if number or torch.cuda.device_count() < len((_SERVING, _READING)):
        return f"{ONE_GPU}; write transport=peer_copy"
    return None


class GroupTransport:
    """Reads by groups of two. ``backend``: nccl or gloo. ``memory``: where it computes; None: the arena."""

    def __init__(self, backend: str, arena: Arena, host: str = LOOPBACK, memory: Any = None) -> None:
        from realexec.memory.tensor_memory import ArenaMemory

        self._arena, self._backend, self._host = arena, backend, host
        self._memory = ArenaMemory(arena) if memory is None else memory
        self._listening = ListeningTransport(self._serve, LIMITS, host)
        self.close = self._listening.close

    def address(self) -> dict[str, Any]:
        """Return the listener's address, and which GPU this worker has."""
        address = self._listening.listener.address()
        return {
            "transport": self._backend,
            **address,
            "size_bytes": self._arena.size_bytes,
            "gpu": self._gpu(),
        }

    def connect(self, address: dict[str, Any]) -> "GroupLink":
        """Return a link with its first group. PeerLost also if both ends use one GPU: NCCL refuses that."""
        if address["gpu"] is not None and address["gpu"] == self._gpu():
            raise PeerLost(f"{ONE_GPU}; write transport=peer_copy")
        link = GroupLink(self._memory, address, self._backend, self._host)
        return self._listening.links.add(link)

    def _gpu(self) -> str | None:
        """Return host and UUID of this worker's GPU; None with Gloo, or if it computes on a CPU."""
        device = self._memory.place(0, 1).device if self._backend == NCCL else None
        if device is None or device.type != "cuda":
            return None
        import torch

        return f"{socket.gethostname()} {torch.cuda.get_device_properties(device).uuid}"

    def _serve(self, channel: Channel) -> None:
        """Answer one peer's reads until it disconnects."""
        pair = _Pair(self._backend, channel, self._host, _SERVING)
        while True:
            parts = checked_parts(channel, parts_of(*channel.receive()), self._memory.size_bytes)
            if parts:
                channel.send({"type": "bytes"})
                for batch in _batches(parts):
                    pair.send(self._memory, batch)


class GroupLink:
    """A link to a peer's memory. Reads of several threads run in parallel, each over its own group."""

    def __init__(self, memory: Any, address: dict[str, Any], backend: str, host: str) -> None:
        self._memory, self._address, self._how = memory, address, (backend, host)
        self._connections = ConnectionPool(self._connected)
        self.close = self._connections.close

    def check(self, segments: Sequence[Segment]) -> None:
        """Check against the arena size in the peer's address; the peer checks again itself."""
        check_segments(segments, self._memory.size_bytes, int(self._address["size_bytes"]))

    def read(self, segments: Sequence[Segment]) -> None:
        """Request all segments at once. On return the bytes are in the memory this worker computes in."""
        self.check(segments)
        if not segments:
            return
        with self._connections.lend() as pair:
            request_read(pair.channel, segments)
            for batch in _batches([(local, size) for _, local, size in segments]):
                pair.receive(self._memory, batch)

    def _connected(self) -> "_Pair":
        channel = connect(self._address, LIMITS)
        channel.set_timeout(SILENCE.total_seconds())
        try:
            return _Pair(self._how[0], channel, self._how[1], _READING)
        except (ChannelClosed, ProtocolError, TimeoutError) as error:
            channel.close()
            raise PeerLost(str(error)) from None


class _Pair:
    """A group of two processes and the channel between them: one side sends, the other receives."""

    def __init__(self, backend: str, channel: Channel, host: str, rank: int) -> None:
        self.channel, self._backend, self._closed = channel, backend, threading.Event()
        try:
            self._group = _group(backend, pair_store(channel), host, rank)
        except RuntimeError as error:
            raise ChannelClosed(f"no group of two could be made: {_first_line(error)}") from None

    def send(self, memory: Any, parts: Sequence[Part]) -> None:
        """Send these parts in one message."""
        device = self._device(memory)
        with memory.copy_stream():
            # Gloo sends at once, so its bytes must be on the host when `to` returns.
            on_the_way = device.type != "cpu"
            places = [memory.place(*part).to(device, non_blocking=on_the_way) for part in parts]
            self._done(self._group.send([_joined(places)], _READING, 0))

    def receive(self, memory: Any, parts: Sequence[Part]) -> None:
        """Receive one message of the peer into these parts."""
        if self._closed.is_set():
            raise ChannelClosed("the link was closed")
        device = self._device(memory)
        with memory.copy_stream():
            places = [memory.place(*part) for part in parts]
            straight = len(places) == 1 and places[0].device == device
            came = places[0] if straight else places[0].new_empty(sum(map(len, places)), device=device)
            self._done(self._group.recv([came], _SERVING, 0))
            if not straight:
                for place, part in zip(places, came.split([len(one) for one in places])):
                    place.copy_(part, non_blocking=True)
        if self._closed.is_set():
            raise ChannelClosed("the link was closed")

    def _device(self, memory: Any) -> Any:
        """Return the device of message buffers: NCCL needs GPU memory, Gloo host memory."""
        import torch

        last = memory.place(memory.size_bytes - 1, 1).device
        return last if self._backend == NCCL else torch.device("cpu")

    def close(self) -> None:
        """Close the channel. A read under way ends after the message that it is receiving."""
        self._closed.set()
        self.channel.close()

    def _done(self, work: Any) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            raise ChannelClosed(f"the peer is gone or silent: {_first_line(error)}") from None


def _group(backend: str, store: Any, host: str, rank: int) -> Any:
    """Make a group of these two processes. It leaves other process groups of this process alone."""
    from torch import distributed

    made: Any = distributed
    if backend == NCCL:
        options = made.ProcessGroupNCCL.Options()
        options._timeout = SILENCE
        return made.ProcessGroupNCCL(store, rank, 2, options)
    options = made.ProcessGroupGloo._Options()
    options._timeout, options._threads = SILENCE, 1
    options._devices = [made.ProcessGroupGloo.create_device(hostname=host, lazy_init=False)]
    return made.ProcessGroupGloo(store, rank, 2, options)


def _batches(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Yield the parts of each message. Both sides get the same split, because their sizes are equal."""
    batch: list[Part] = []
    room = CHUNK_BYTES
    for offset, size in parts:
        for begin in range(0, size, CHUNK_BYTES):
            now = min(CHUNK_BYTES, size - begin)
            if now > room:
                yield batch
                batch, room = [], CHUNK_BYTES
            batch.append((offset + begin, now))
            room -= now
    if batch:
        yield batch


def _joined(places: Sequence[Any]) -> Any:
    import torch

    return places[0] if len(places) == 1 else torch.cat(list(places))


def _first_line(error: Exception) -> str:
    """Return an error's first line: these libraries' messages are long, with addresses of their code."""
    return str(error).partition("\n")[0].rpartition("] ")[2] or type(error).__name__
