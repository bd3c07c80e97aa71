"""The driver's side of worker processes: connects, watches and ends them, whichever launcher started them."""

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from realexec.launchers.base import Launcher, Process
from realexec.launchers.local import LocalLauncher
from realexec.system import signals
from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, ProtocolError
from realexec.wire.handshake import new_secret
from realexec.wire.inbox import Inbox
from realexec.wire.listener import Listener
from realexec.wire.messages import CODEC, Died, FromWorker, Ready, RoundsDone, StepsDone, ToWorker
from realexec.wire.outbox import Outbox
from realexec.worker.worker_process import BEAT
from serving.vocabulary.errors import UserError

# Translate times of another host's clock: each host's ``time.monotonic`` starts when the host boots.


class RemoteClock:
    """Learns the clock difference from heartbeats, which carry their send time: the fastest one is used.

    Translated times are late by that heartbeat's delay, no more than any message takes. From the first step
    on the difference stays fixed, so that steps stay in order; later clock drift is not corrected.
    """

    def __init__(self) -> None:
        self._ahead_ns: int | None = None  # this host's clock minus the other's
        self._settled = False

    def beat(self, sent_ns: int, now_ns: int) -> int:
        """Translate the send time of a heartbeat that arrived at ``now_ns``."""
        ahead_ns = now_ns - sent_ns
        if self._ahead_ns is None or (not self._settled and ahead_ns < self._ahead_ns):
            self._ahead_ns = ahead_ns
        return sent_ns + self._ahead_ns

    def here(self, message: Any) -> Any:
        """Return the message with its times translated to this host's clock."""
        if not isinstance(message, StepsDone | RoundsDone) or not message.ends_ns:
            return message
        self._settled, ahead_ns = True, self._ahead_ns or 0
        message = message._replace(ends_ns=tuple([end_ns + ahead_ns for end_ns in message.ends_ns]))
        if isinstance(message, RoundsDone):
            return message
        return message._replace(started_ns=message.started_ns + ahead_ns)


Said = Inbox[tuple[int, FromWorker]]
# How long to wait for the exit code of a process whose connection has already closed.
EXIT_WAIT_S: Final = 10.0
# The pool checks every worker this often. A worker is lost after this many checks in a row in which it had
# sent nothing and had not run: 4 s, not counting time in which this process did not run.
LOOK_S: Final = 0.25
SILENT_LOOKS: Final = 16
ENTRY: Final = "realexec.worker.worker:serve"


class WorkerProcess:
    """One worker: its process, and its connection once it has proved that it is the process started here."""

    def __init__(
        self, worker: int, inbox: Said, launcher: Launcher, start: Mapping[str, Any], epoch: int = 0
    ) -> None:
        self.worker = worker
        self.epoch = epoch  # of the process in this slot: a replaced process may not connect any more
        self._inbox = inbox
        self._outbox = Outbox()
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._asker: threading.Thread | None = None
        self._ended = False  # its exit has been reported to the inbox, or the pool is closing
        self._ready = False
        self._heard = False
        self._beat_ns = 0  # when the newest heartbeat was sent, by the clock that this host shares
        self._silent_looks = 0
        self.process: Process = launcher.start(worker, {**start, "worker": worker, "epoch": epoch})
        self._clock = RemoteClock() if self.process.remote_clock else None

    def send(self, message: ToWorker) -> None:
        """Queue a message for the worker. Never blocks, even if the worker is slow, stopped or dead."""
        self._outbox.put(*CODEC.encode(message))

    def connected(self, channel: Channel) -> None:
        """Attach the worker's connection: queued messages are sent, and its frames go to the inbox."""
        with self._lock:
            if self._ended or self._channel is not None:
                channel.close()
                return
            self._channel = channel
        self._outbox.open(channel)
        self._inbox.watch(channel, self._take, self._hung_up)

    def look(self) -> None:
        """Check the worker, every `LOOK_S`: report it lost if it exited before connecting or is silent."""
        if self._ended:
            return
        cause = self.process.cut_off()
        if cause is not None:
            self.lose(cause)
            return
        if self._channel is None and (cause := self.process.ended()) is not None:
            self._tell(Died(cause))
        unread = self._channel is not None and self._channel.unread()
        # A running process may hold the interpreter lock for seconds, in imports for example.
        if self._heard or unread or not self._ready or self.process.ran():
            self._heard, self._silent_looks = False, 0
            return
        self._silent_looks += 1
        if self._silent_looks >= SILENT_LOOKS:
            seconds = SILENT_LOOKS * LOOK_S
            self.lose(f"nothing was heard of the worker process for {seconds:g} s: {self.process.silence()}")

    def runs_since(self, since_ns: int) -> bool:
        """Whether the worker sent a heartbeat after ``since_ns``."""
        return self._beat_ns > since_ns

    def cpu_ns(self) -> int:
        """CPU time of the process so far; 0 once it has exited."""
        return self.process.cpu_ns()

    def lose(self, cause: str) -> None:
        """Report the worker as lost to the inbox, once, and kill it."""
        self._tell(Died(cause))
        self.process.kill()

    def close(self) -> None:
        """Kill the process now; it has nothing to save."""
        with self._lock:
            self._ended = True
        self.process.close()
        if self._channel is not None:
            self._channel.close()
        self._outbox.close()
        if self._asker is not None:
            self._asker.join()

    def _take(self, head: dict[str, Any], payload: bytes) -> None:
        self._heard = True
        if head.get("type") == BEAT:
            self._beat(head.get("sent_ns"))
            return
        message = CODEC.decode(head, payload)
        if self._clock is not None:
            message = self._clock.here(message)
        if isinstance(message, Died):
            self._tell(message)
            return
        self._ready = self._ready or isinstance(message, Ready)
        with self._lock:
            if not self._ended:
                self._inbox.put((self.worker, message))

    def _beat(self, sent_ns: Any) -> None:
        if isinstance(sent_ns, int):
            now_ns = time.monotonic_ns()
            self._beat_ns = sent_ns if self._clock is None else self._clock.beat(sent_ns, now_ns)

    def _hung_up(self, why: ChannelClosed | ProtocolError) -> None:
        """Handle the closed connection; another thread waits for the process's exit status."""
        if isinstance(why, ProtocolError):
            self.lose(f"the worker sent an invalid message: {why}")
            return
        self._asker = threading.Thread(target=self._tell_exit, name="exit", daemon=True)
        self._asker.start()

    def _tell_exit(self) -> None:
        cause = self.process.end_within(EXIT_WAIT_S)
        if cause is None:
            self.lose("the worker closed its connection")
            return
        self._tell(Died(cause))

    def _tell(self, end: Died) -> None:
        with self._lock:
            if not self._ended:
                self._ended = True
                self._inbox.put((self.worker, end))


class WorkerPool:
    """All workers of a run; a context manager that leaves no process behind.

    Workers connect over a Unix socket, or by TCP if ``tcp_host`` (an address of this machine) or the launcher
    asks for it. Create the pool in a thread that outlives it, best the main one: workers end when the thread
    that started them does.
    """

    def __init__(
        self,
        workers: int,
        model: Mapping[str, Any],
        seed: int,
        batch_size: int,
        *,
        entry: str = ENTRY,
        tcp_host: str | None = None,
        more: Mapping[str, Any] | None = None,
        launcher: Launcher | None = None,
    ) -> None:
        """Start the workers. Each calls ``entry`` with its `Control` and its start values, with ``more``.

        ``launcher`` starts the processes and is closed with the pool; None: they start on this machine.
        """
        self.inbox = Said()
        self.workers: list[WorkerProcess] = []
        self.secret = new_secret()
        self._closing = threading.Event()
        self._starting = threading.Lock()
        self._listener: Listener | None = None
        self._watch = threading.Thread(target=self._look, name="watch", daemon=True)
        self._launcher: Launcher = LocalLauncher() if launcher is None else launcher
        try:
            host = self._launcher.open(workers)
            self._listener = Listener(self.secret, self._admitted, tcp_host=tcp_host or host)
            start = {
                "secret": self.secret.hex(), "address": self._listener.address, "entry": entry,
                "model": dict(model), "seed": seed, "batch_size": batch_size, **(more or {}),
            }  # fmt: skip
            for worker in range(workers):
                with signals.postponed(), self._starting:
                    self.workers.append(WorkerProcess(worker, self.inbox, self._launcher, start))
            self._watch.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def one_host(self) -> bool:
        """Whether all workers run on the host of this process."""
        return self._launcher.one_host

    @property
    def addresses(self) -> Sequence[str]:
        """For each worker, the address of its host at which other workers reach it."""
        return self._launcher.addresses

    @property
    def places(self) -> Sequence[str]:
        """Where each worker runs, as text."""
        return self._launcher.places

    def wait_ready(self, timeout_s: float) -> None:
        """Return when every worker has built its model; UserError when one fails or takes too long."""
        deadline_s = time.monotonic() + timeout_s
        for ready in range(len(self.workers)):
            try:
                worker, message = self.inbox.get(timeout=max(deadline_s - time.monotonic(), 0))
            except queue.Empty:
                raise UserError(
                    f"Only {ready} of {len(self.workers)} workers were ready after {timeout_s:g} s; "
                    "start fewer workers, or end what else keeps the cores busy."
                ) from None
            if not isinstance(message, Ready):
                cause = message.cause if isinstance(message, Died) else str(message)
                raise UserError(f"Worker {worker} did not start ({cause}); correct the cause and run again.")

    def close(self) -> None:
        """Kill every process by its handle, then close the listener, the launcher and the inbox."""
        self._closing.set()
        if self._watch.ident is not None:
            self._watch.join()
        for worker in self.workers:
            worker.close()
        if self._listener is not None:
            self._listener.close()
        self._launcher.close()
        self.inbox.close()

    def _admitted(self, channel: Channel, identity: dict[str, Any]) -> None:
        with self._starting:
            meant = [
                worker
                for worker in self.workers
                if identity == {"worker": worker.worker, "epoch": worker.epoch}
            ]
        if meant:
            meant[0].connected(channel)
        else:
            channel.close()

    def _look(self) -> None:
        while not self._closing.wait(LOOK_S):
            for worker in self.workers:
                worker.look()
