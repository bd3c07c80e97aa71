"""A worker's process from its first line on: where it connects, how it is heard of, what it is told.

The driver has a process started (`realexec.launchers`) and writes one line of JSON into its standard input.
The secret of the run is in it, and so stands in no argument, environment or file. The pipe stays open while
the driver lives.
"""

import importlib
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any, Final

from realexec import prctl, signals
from realexec.messages import CODEC, Died, FromWorker, ToWorker
from realexec.orphans import end_with_parent
from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, ProtocolError
from realexec.wire.listener import dial

# A thread of the worker says so often that the process runs, whatever its other threads are at.
BEAT_S: Final = 0.5
BEAT: Final = "Beat"
# The driver starts workers one after the other, and may be busy with that when one connects.
_JOIN_S: Final = 60.0


def main(start: dict[str, Any]) -> None:
    """Connect, then hand over to the entry that ``start`` names (``module:function``)."""
    # Ctrl-C reaches the whole process group; the driver decides when workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signals.let_in()
    prctl.set_name(f"realexec-w{start['worker']}")
    end_with_parent(start["parent"], lifeline=0)
    identity = {"worker": start["worker"], "epoch": start["epoch"]}
    try:
        channel = dial(start["address"], bytes.fromhex(start["secret"]), identity, timeout_s=_JOIN_S)
    except (ChannelClosed, ProtocolError, TimeoutError):
        os._exit(1)  # the driver has gone, and with it everybody who could read a complaint
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
    """The worker's end of its connection to the driver; a thread says that the process lives."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        threading.Thread(target=self._beat, name="heart-beat", daemon=True).start()

    def send(self, message: FromWorker) -> None:
        """Returns when the system has taken it; ChannelClosed when the driver is gone. For any thread."""
        self._channel.send(*CODEC.encode(message))

    def recv(self) -> ToWorker:
        """The next message, in order; EOFError when the driver is gone. For one thread."""
        try:
            message: ToWorker = CODEC.decode(*self._channel.receive())
        except (ChannelClosed, ProtocolError):
            raise EOFError("the driver is gone") from None
        return message

    def recv_some(self) -> Iterator[ToWorker]:
        """The messages that are there; waits for none. Raises as `recv` does, for one thread at a time."""
        try:
            for head, payload in self._channel.receive_some():
                yield CODEC.decode(head, payload)
        except (ChannelClosed, ProtocolError):
            raise EOFError("the driver is gone") from None

    def fileno(self) -> int:
        """Of the connection, to wait for messages."""
        return self._channel.fileno()

    def _beat(self) -> None:
        pause = threading.Event()
        try:
            while True:
                self._channel.send({"type": BEAT, "sent_ns": time.monotonic_ns()})
                pause.wait(BEAT_S)
        except ChannelClosed:
            return
