"""A worker process with only an arena and a transport, to measure links without a model."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from realexec.memory.arena import Arena
from realexec.transport_registry import DIRECT, opened
from realexec.transports.base import Link, Segment, Transport
from realexec.wire.messages import Meet, Open, Opened, Pull, Pulled, Ready
from realexec.worker.worker_process import Control

ENTRY = "realexec.calibration.link_worker:serve"


def serve(control: Control, start: Mapping[str, Any]) -> None:
    """Handle messages until the driver disconnects: make an arena, connect to the other worker, read from it.

    The ``unit`` of a `Pull` is the number of bytes to read.
    """
    control.send(Ready())
    what = control.recv()
    assert isinstance(what, Open)
    with Arena.create(what.kv_bytes) as arena, closing(_transport(what, arena, start["model"])) as transport:
        control.send(Opened(transport.address()))
        links: dict[int, Link] = {}
        while True:
            message = control.recv()
            if isinstance(message, Meet):
                others = [one for one in range(len(message.addresses)) if one != what.slot]
                links = {one: transport.connect(message.addresses[one]) for one in others}
            elif isinstance(message, Pull):
                links[message.source[1]].read([Segment(0, 0, message.unit)])
                control.send(Pulled(message.load, message.unit, message.unit, ""))


def _transport(what: Open, arena: Arena, model: Mapping[str, Any]) -> Transport:
    """Open the transport. Only those that read the memory a device computes in need torch imported."""
    if what.transport not in DIRECT:
        return opened(what.transport, arena)
    from realexec.memory.device import device_for, device_of
    from realexec.memory.tensor_memory import ArenaMemory

    device = device_of(device_for(model["device"], what.slot))
    return opened(what.transport, arena, memory=ArenaMemory(arena, device, direct=True))
