"""Reads by NIXL (UCX): RDMA if there is an adapter, else shared memory or TCP, behind one interface.

A channel to the peer's listener carries NIXL's metadata, signals to the peer when a read begins and ends, and
closes with the peer's process. If no adapter reads on its own, the peer must drive UCX's progress: its
serving thread does so during a read, else it sleeps. NIXL's progress thread would always take most of a core.
"""

import ctypes
import importlib.util
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from realexec.memory.arena import Arena
from realexec.system.import_check import fault_of_import, first_line
from realexec.transports.base import BadSegment, PeerLost, Segment, check_segments
from realexec.transports.peer_listener import Links, PeerListener, connect
from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, FrameLimits, ProtocolError
from realexec.wire.listener import LOOPBACK

NAME: Final = "nixl"
MISSING: Final = "the nixl package is not installed: write `pip install nixl`"
# NIXL's metadata of an agent: its connections and registered memory, 1 to 4 kB with UCX 1.20.
LIMITS: Final = FrameLimits(head_bytes=4096, payload_bytes=1 << 20)
# Both sides poll without a pause for BUSY_S, in which most reads finish; afterwards they pause between polls.
# Pauses cost a large read a tenth of its rate and leave the processor to threads that compute.
BUSY_S: Final = 0.02
PAUSE_S: Final = 20e-6
# Time limit to release a cancelled transfer: it may still write here until NIXL has released it.
CANCEL_S: Final = 5.0
# UCX waits for a silent host as long as TCP retries, which is many minutes. So during a read the peer sends a
# heartbeat every BEAT_S, and the reader counts it as lost after SILENCE_S without one.
BEAT_S: Final = 0.5
SILENCE_S: Final = 10.0
_BEGIN: Final = {"type": "begin"}
_END: Final = {"type": "end"}
_HERE: Final = {"type": "here"}
_MEMORY: Final = "DRAM"
_API: Final = "nixl._api"
T = TypeVar("T")


def missing() -> str | None:
    """Return why NIXL cannot be used: not installed, or its import fails (tried in a child process)."""
    if absent() is not None:
        return MISSING
    fault = fault_of_import([_API])
    return None if fault is None else _broken(fault)


def absent() -> str | None:
    """Like `missing`, but without trying the import."""
    return MISSING if importlib.util.find_spec("nixl") is None else None


def _broken(fault: str) -> str:
    return f"the nixl package cannot be imported ({fault}): install it anew by `pip install nixl`"


class NixlTransport:
    """Registers an arena with NIXL. Binds to this host's loopback unless ``host`` is another address."""

    def __init__(self, arena: Arena, host: str = LOOPBACK, silence_s: float = SILENCE_S) -> None:
        self._agent, self._silence_s = _Agent(arena, host), silence_s
        self._links = Links()
        self._listener = PeerListener(self._serve, LIMITS, host)

    def address(self) -> dict[str, Any]:
        """Return the listener's address. NIXL's metadata is sent to each peer that connects there."""
        return {"transport": NAME, **self._listener.address(), "size_bytes": self._agent.size_bytes}

    def connect(self, address: dict[str, Any]) -> "NixlLink":
        """Connect, receive the peer's metadata and return a link."""
        channel = connect(address, LIMITS)
        try:
            head, metadata = channel.receive()
            name = self._agent.met(metadata)
            link = NixlLink(
                self._agent,
                channel,
                name=name,
                begins=head["begins"],
                address=address,
                silence_s=self._silence_s,
            )
        except (ChannelClosed, ProtocolError, TimeoutError) as error:
            raise PeerLost(str(error)) from None
        self._links.add(link)
        return link

    def close(self) -> None:
        """Disconnect every reader, and close the links made here."""
        self._listener.close()
        self._links.close()
        self._agent.close()

    def _serve(self, channel: Channel) -> None:
        """Drive UCX's progress while this peer reads, until it disconnects."""
        channel.send({"type": "agent", "begins": self._agent.begins}, self._agent.metadata)
        while True:
            head, _ = channel.receive()
            if head == _BEGIN:
                looks, said_s = _Looks(), time.monotonic()
                while not channel.ready():
                    self._agent.progress()
                    looks.pause()
                    if time.monotonic() - said_s > BEAT_S:
                        channel.send(_HERE)
                        said_s = time.monotonic()


class NixlLink:
    """A link to a peer's memory by NIXL. Reads of several threads run one after the other."""

    def __init__(
        self, agent: "_Agent", channel: Channel, *, name: str, begins: int, address: Any, silence_s: float
    ) -> None:
        self._agent = agent
        self._channel = channel
        self._silence_s = silence_s
        self._name = name
        self._begins = int(begins)
        self._remote_bytes = int(address["size_bytes"])
        self._reading = threading.Lock()
        self._forgotten = False

    def check(self, segments: Sequence[Segment]) -> None:
        """Check against the arena size in the peer's address; NIXL checks what is registered."""
        check_segments(segments, self._agent.size_bytes, self._remote_bytes)

    def read(self, segments: Sequence[Segment]) -> None:
        """Read all segments in one NIXL transfer."""
        self.check(segments)
        if not segments:
            return
        with self._reading:
            try:
                self._channel.send(_BEGIN)
                try:
                    self._transfer(segments)
                finally:
                    self._channel.send(_END)
            except (ChannelClosed, ProtocolError, PeerLost) as error:
                self._forget()
                raise PeerLost(str(error)) from None

    def _transfer(self, segments: Sequence[Segment]) -> None:
        transfer = self._agent.reading(self._name, self._begins, segments)
        try:
            looks, heard_s = _Looks(), time.monotonic()
            while not self._agent.done(transfer):
                if self._channel.ready():
                    if self._channel.receive()[0] != _HERE:
                        raise ProtocolError("a peer sent an unexpected message during a read")
                    heard_s = time.monotonic()
                elif time.monotonic() - heard_s > self._silence_s:
                    raise PeerLost(f"nothing was heard of the peer for {self._silence_s:g} s during a read")
                looks.pause()
        finally:
            self._agent.release(transfer)

    def close(self) -> None:
        """Close the link. A read under way raises PeerLost."""
        self._channel.close()
        if self._reading.acquire(blocking=False):  # else the read under way calls `_forget`
            self._forget()
            self._reading.release()

    def _forget(self) -> None:
        self._channel.close()
        if not self._forgotten:
            self._forgotten = True
            self._agent.forget(self._name)


class _Looks:
    """Pacing of a polling loop: no pauses for BUSY_S, then PAUSE_S between polls."""

    def __init__(self) -> None:
        self._busy_until_s = time.monotonic() + BUSY_S

    def pause(self) -> None:
        if time.monotonic() > self._busy_until_s:
            time.sleep(PAUSE_S)


class _Agent:
    """The NIXL agent of this process, used by one thread at a time, and the arena registered with it."""

    def __init__(self, arena: Arena, host: str) -> None:
        _settings(host)
        try:
            from nixl._api import nixl_agent, nixl_agent_config
        except Exception as error:  # an incompatible library may raise any exception
            raise ImportError(_broken(first_line(error))) from error
        self._buffer: Any = (ctypes.c_char * arena.size_bytes).from_buffer(arena.buffer)
        self.size_bytes: int = arena.size_bytes
        self.begins: int = ctypes.addressof(self._buffer)
        self._lock = threading.Lock()
        self._closed = False
        name = secrets.token_hex(16)  # agents that connect to each other must have different names
        self._nixl = nixl_agent(name, nixl_agent_config(enable_prog_thread=False, backends=["UCX"]))
        self._registered = self._nixl.register_memory([(self.begins, self.size_bytes, 0, "")], _MEMORY)
        self.metadata: bytes = self._nixl.get_agent_metadata()

    def met(self, metadata: bytes) -> str:
        """Register the peer that sent this metadata, and return its agent's name."""
        name = self._call(lambda nixl: nixl.add_remote_agent(metadata))
        return name.decode() if isinstance(name, bytes) else str(name)

    def forget(self, name: str) -> None:
        """Remove a peer, from which nothing is read any more."""
        with self._lock:
            if not self._closed:
                _tried(lambda: self._nixl.remove_remote_agent(name))

    def progress(self) -> None:
        """Drive the progress of reads that peers make here."""
        _tried(lambda: self._call(lambda nixl: nixl.get_new_notifs()))  # a peer may have ended

    def reading(self, name: str, begins: int, segments: Sequence[Segment]) -> Any:
        """Start a transfer and return it; BadSegment if NIXL refuses a segment."""
        rows = np.array(segments, dtype=np.uint64)
        zeros = np.zeros(len(rows), dtype=np.uint64)
        theirs = np.stack((rows[:, 0] + np.uint64(begins), rows[:, 2], zeros), axis=1)
        ours = np.stack((rows[:, 1] + np.uint64(self.begins), rows[:, 2], zeros), axis=1)

        def begin(nixl: Any) -> Any:
            descriptions = [nixl.get_xfer_descs(each, _MEMORY) for each in (ours, theirs)]
            try:
                transfer = nixl.initialize_xfer("READ", *descriptions, name)
            except Exception as error:
                raise BadSegment(f"NIXL refuses a segment: {error}") from None
            nixl.transfer(transfer)
            return transfer

        return self._call(begin)

    def done(self, transfer: Any) -> bool:
        """Whether all bytes have arrived; PeerLost if the transfer has failed."""
        state = self._call(lambda nixl: nixl.check_xfer_state(transfer))
        if state == "ERR":
            raise PeerLost("NIXL could not transfer the bytes")
        return bool(state == "DONE")

    def release(self, transfer: Any) -> None:
        """Release a transfer. After that it writes nothing more here."""
        deadline_s = time.monotonic() + CANCEL_S
        while not _tried(lambda: self._call(lambda nixl: nixl.release_xfer_handle(transfer))):
            if time.monotonic() > deadline_s:
                raise PeerLost("NIXL does not release a cancelled transfer")
            time.sleep(PAUSE_S)

    def close(self) -> None:
        """Deregister the arena."""
        with self._lock:
            if not self._closed:
                self._closed = True
                _tried(lambda: self._nixl.deregister_memory(self._registered))
                self._nixl = self._registered = self._buffer = None  # the arena may be unmapped

    def _call(self, use: Callable[[Any], T]) -> T:
        with self._lock:
            if self._closed:
                raise ChannelClosed("the transport was closed")
            try:
                return use(self._nixl)
            except (BadSegment, PeerLost):
                raise
            except Exception as error:  # NIXL has one exception class per failure state
                raise PeerLost(f"NIXL: {error}") from None


def _settings(host: str) -> None:
    """Set UCX's and NIXL's environment variables, unless they are set already.

    By default UCX listens on every address of this machine, and prints errors that PeerLost reports anyway.
    """
    if host == LOOPBACK:
        os.environ.setdefault("UCX_NET_DEVICES", "lo")
    os.environ.setdefault("UCX_LOG_LEVEL", "fatal")
    os.environ.setdefault("NIXL_LOG_LEVEL", "FATAL")


def _tried(call: Callable[[], object]) -> bool:
    try:
        call()
    except Exception:  # from NIXL, or PeerLost
        return False
    return True
