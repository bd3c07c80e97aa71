"""A worker's data threads: they pull parameters and state from peers while the compute thread runs steps.

Parameters are pulled unit after unit by one thread; state transfers run beside them. An error in a read is
reported with that read. Any other error in a data thread ends the worker, with its cause.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Final, NamedTuple

from realexec.model.weights import Weights
from realexec.transports.base import PeerLost, Segment
from realexec.wire.messages import Fetched, FromWorker, Pull, Pulled, StopFetch, StopPull
from realexec.worker.parameters import HOST, REPLICA, Parameters
from realexec.worker.peers import Peers

# Transfers of state that run at the same time; more of them wait for one to end.
FETCHES: Final = 4
STOPPED: Final = "it was stopped"
# Waking a thread and returning the result takes 0.1 to 0.2 ms of CPU time (docs/explanation/REALEXEC.md);
# copying this many bytes takes 0.01.
SHORT_READ_BYTES: Final = 32 << 10
SHORT_READ_S: Final = 0.0005


class ReadResult(NamedTuple):
    """How a read from a peer ended. ``cause``: why not all bytes came; empty if they did. ``lost_peer``: the
    peer's slot if it is lost."""

    cause: str
    lost_peer: int | None
    cpu_ns: int


class Mover:
    """Runs the data threads. ``parameters``: of this worker, with the sources for ``ssd`` and ``remote``.
    ``failed`` receives errors that no message reports."""

    def __init__(
        self,
        peers: Peers,
        parameters: Parameters,
        send: Callable[[FromWorker], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._peers, self._parameters, self._send, self._failed = peers, parameters, send, failed
        self._pulls = ThreadPoolExecutor(1, "pull")
        self._fetches = ThreadPoolExecutor(FETCHES, "fetch")
        self._stopped_loads: set[int] = set()
        self._stopped_transfers: set[int] = set()

    def handle(self, message: Pull | StopPull | StopFetch) -> None:
        """Queue or stop a transfer; returns at once."""
        match message:
            case Pull():
                self._submit(self._pulls, lambda: self._pull(message))
            case StopPull(load):
                self._stopped_loads.add(load)
            case StopFetch(transfer):
                self._stopped_transfers.add(transfer)

    def delay_pulls(self, until: Event) -> None:
        """Make all later pulls wait for this event."""
        self._submit(self._pulls, until.wait)

    def _submit(self, threads: ThreadPoolExecutor, work: Callable[[], object]) -> None:
        """Run ``work`` in one of these threads; an exception goes to ``failed``, or nobody would see it."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                self._failed(error)

        threads.submit(guarded)

    def _pull(self, pull: Pull) -> None:
        if pull.load in self._stopped_loads:
            return
        began_ns = time.thread_time_ns()
        try:
            weights = self._parameters.at(pull.place, pull.model)
            self._pull_unit(pull, weights)
        except PeerLost as error:
            self._send(Pulled(pull.load, pull.unit, 0, str(error), pull.source[1]))
        except Exception as error:
            self._send(Pulled(pull.load, pull.unit, 0, f"{type(error).__name__}: {error}"))
        else:
            cpu_ns = time.thread_time_ns() - began_ns
            self._send(Pulled(pull.load, pull.unit, weights.layout.unit_bytes(pull.unit), "", cpu_ns=cpu_ns))

    def _pull_unit(self, pull: Pull, weights: Weights) -> None:
        kind, number = pull.source
        if kind in ("ssd", "remote"):
            weights.fill(pull.unit, self._parameters.models.sources[pull.model])
            name = f"ssd of host {number}" if kind == "ssd" else "remote store"
            self._peers.carry(name, weights.layout.unit_bytes(pull.unit))
        elif kind == "host" and number == self._peers.slot:
            weights.copy_from(pull.unit, self._parameters.at(HOST, pull.model))
            self._peers.carry(f"pcie of host {number}", weights.layout.unit_bytes(pull.unit))
        else:
            layout = self._parameters.models.layout(pull.model, pull.layers)
            begins = self._peers.region(number, kind if kind == REPLICA else f"{HOST} {pull.model}")
            remote = [(begins + offset, size) for offset, size in layout.segments(pull.unit)]
            copies = weights.copies(pull.unit, remote)
            self._peers.read(number, [Segment(*copy) for copy in copies])
            weights.came(pull.unit)

    def fetch(
        self, transfer: int, source: int, segments: Sequence[Segment], ended: Callable[[bool], None]
    ) -> None:
        """Read state from a peer. ``ended`` gets whether all of it came, then the driver gets the report."""
        self._submit(self._fetches, lambda: self._fetch(transfer, source, segments, ended))

    def read(self, source: int, segments: Sequence[Segment], ended: Callable[[ReadResult], None]) -> None:
        """Read bytes from a peer; the result goes to ``ended`` alone, not to the driver."""
        self._submit(self._fetches, lambda: ended(self.read_now(source, segments)))

    def read_now(self, source: int, segments: Sequence[Segment]) -> ReadResult:
        """Read bytes from a peer in the calling thread."""
        began_ns = time.thread_time_ns()
        cause, lost_peer = self._read(source, segments)
        return ReadResult(cause, lost_peer, time.thread_time_ns() - began_ns)

    def is_short_read(self, source: int, size_bytes: int) -> bool:
        """Whether reading this many bytes from a peer takes less time than handing the read to a thread."""
        return size_bytes <= SHORT_READ_BYTES and self._peers.wait_s(source, size_bytes) <= SHORT_READ_S

    def _fetch(
        self, transfer: int, source: int, segments: Sequence[Segment], ended: Callable[[bool], None]
    ) -> None:
        stopped, began_ns = transfer in self._stopped_transfers, time.thread_time_ns()
        cause, lost_peer = (STOPPED, None) if stopped else self._read(source, segments)
        ended(not cause)
        moved_bytes = 0 if cause else sum(segment.size_bytes for segment in segments)
        cpu_ns = time.thread_time_ns() - began_ns
        self._send(Fetched(transfer, moved_bytes, cause, lost_peer, cpu_ns))

    def _read(self, source: int, segments: Sequence[Segment]) -> tuple[str, int | None]:
        """Read; returns why not all bytes came (empty: they did), and ``source`` if that peer is lost."""
        try:
            if segments:
                self._peers.read(source, segments)
        except PeerLost as error:
            return str(error), source
        except Exception as error:
            return f"{type(error).__name__}: {error}", None
        return "", None

    def close(self) -> None:
        """Start no more transfers, and close the links to peers."""
        self._pulls.shutdown(wait=False, cancel_futures=True)
        self._fetches.shutdown(wait=False, cancel_futures=True)
        self._peers.close()
