"""What a worker process runs first: it connects to the driver, sends heartbeats and receives messages.

A launcher (`realexec.launchers`) starts the process for the driver and writes one line of JSON to its
standard input. The line contains the run's secret, so that the secret is in no argument, environment variable
or file. The pipe stays open while the driver lives.
"""

import importlib
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any, Final

from realexec.system import prctl, signals
from realexec.system.parent_exit import end_with_parent
from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, ProtocolError
from realexec.wire.listener import dial
from realexec.wire.messages import CODEC, Died, FromWorker, ToWorker

# A thread of the worker sends a heartbeat this often, whatever the other threads do.
BEAT_S: Final = 0.5
BEAT: Final = "Beat"
# The driver starts workers one after the other, and may be busy with that when a worker connects.
_JOIN_S: Final = 60.0


def main(start: dict[str, Any]) -> None:
    """Connect to the driver, then call the entry that ``start`` names (``module:function``)."""
    # Ctrl-C reaches the whole process group; the driver decides when workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signals.let_in()
    prctl.set_name(f"realexec-w{start['worker']}")
    end_with_parent(start["parent"], lifeline=0)
    identity = {"worker": start["worker"], "epoch": start["epoch"]}
    try:
        channel = dial(start["address"], bytes.fromhex(start["secret"]), identity, timeout_s=_JOIN_S)
    except (ChannelClosed, ProtocolError, TimeoutError):
        os._exit(1)  # the driver has exited, so no process could read an error message
    control = Control(channel)
    try:
        module, _, name = start["entry"].partition(":")
        getattr(importlib.import_module(module), name)(control, start)
    except (EOFError, ChannelClosed):
        return
    except Exception as error:
        traceback.print_exc()
        control.send(Died(f"{type(error).__name__}: {error}"))


class Control:
    """The worker's end of its connection to the driver; one of its threads sends heartbeats."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        threading.Thread(target=self._beat, name="heart-beat", daemon=True).start()

    def send(self, message: FromWorker) -> None:
        """Send; returns when the system has the bytes. ChannelClosed if the driver is gone. Thread-safe."""
        self._channel.send(*CODEC.encode(message))

    def recv(self) -> ToWorker:
        """Wait for the next message; EOFError when the driver is gone. For one thread."""
        try:
            message: ToWorker = CODEC.decode(*self._channel.receive())
        except (ChannelClosed, ProtocolError):
            raise EOFError("the driver is gone") from None
        return message

    def recv_some(self) -> Iterator[ToWorker]:
        """Yield the messages that have arrived, without waiting. Raises as `recv`; one thread at a time."""
        try:
            for head, payload in self._channel.receive_some():
                yield CODEC.decode(head, payload)
        except (ChannelClosed, ProtocolError):
            raise EOFError("the driver is gone") from None

    def fileno(self) -> int:
        """The connection's descriptor, to wait for messages."""
        return self._channel.fileno()

    def _beat(self) -> None:
        pause = threading.Event()
        try:
            while True:
                self._channel.send({"type": BEAT, "sent_ns": time.monotonic_ns()})
                pause.wait(BEAT_S)
        except ChannelClosed:
            return
