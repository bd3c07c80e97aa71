"""How fast a worker gets a model's parameters from the disk, the host's copy and another worker.

python -m benchmarks.loads [KEY=VALUE ...]
    # keys of realexec run: model=, model.checkpoint=, device=, transport=

Two workers of `realexec` are started, one with a copy of the model on its host. It loads all parameters nine
times by each way (three times above 1 GB), unit by unit as a run does. In turn with each load, the same bytes
in pieces of the same sizes are moved without any of this code, by the fastest means of the machine: an upper
bound. Rates and the share of the bound are medians over the turns; workers and this process have real-time
priority where the user may.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.command import command
from benchmarks.priority import ahead_of_other_work
from benchmarks.raw_copies import (
    MOST_BLOCK_BYTES,
    Bound,
    DeviceCopy,
    FileRead,
    Loopback,
    MemoryCopy,
    one_torch_thread,
)
from realexec.calibration.calibrate import TIMEOUT_S, CalibratedFleet, sources_of
from realexec.calibration.grid import plan_of
from realexec.calibration.links import load_rate, starts_of
from realexec.calibration.quiet import spread_of
from realexec.driver.processes import WorkerPool
from realexec.transport_registry import DIRECT
from realexec.wire.messages import Open
from servetwin.config.compose.compose import load_config
from servetwin.run.calibrated import fleet_of
from servetwin.run.real_run import require_torch

REPEATS, REPEATS_OF_LARGE, LARGE_BYTES = 9, 3, 1 << 30
# A host's copy and a replica of 8 billion parameters, on a machine whose memory is new.
OPEN_S = 2 * TIMEOUT_S
# Transports whose bytes pass a socket; the others copy memory. NIXL and RDMA choose by themselves.
OVER_SOCKETS = ("tcp", "gloo")


class Turns(NamedTuple):
    """Bytes/s of each load by one way, and of its bound in the same turn; ``bound`` "": nothing bounds it."""

    way: str
    rates: list[float]
    bound: str
    raw: list[float]


def main(words: list[str]) -> int:
    """Exit status 0, whatever the rates are."""
    config = load_config(["workers=2", "out=out/none", *words], "realexec")
    require_torch()
    fleet = fleet_of(config, plan_of(1, 16, 16, 1, True))
    with one_torch_thread():
        for turns in measured(fleet, config.model.checkpoint):
            print(row(turns), flush=True)
    return 0


def row(turns: Turns) -> str:
    """A line: rate (10th to 90th percentile), bound, and the share of the bound that the load reached."""
    rates = spread_of(turns.rates)
    text = f"{turns.way:45s} {rates.median / 1e9:8.2f} GB/s ({rates.p10 / 1e9:.2f} to {rates.p90 / 1e9:.2f})"
    if not turns.bound:
        return f"{text}   no bound: parameters are drawn at random"
    share = median(rate / raw for rate, raw in zip(turns.rates, turns.raw, strict=True))
    return f"{text}   {turns.bound} {median(turns.raw) / 1e9:.2f}   share {share:.2f}"


def pieces_of(fleet: CalibratedFleet) -> list[int]:
    """Bytes of each parameter, in the order in which a load brings them."""
    from realexec.worker.parameters import HostedModels  # after the words were read: it needs torch

    layout = HostedModels([fleet.model], fleet.seed).layout(0, None)
    places = [(unit, place) for unit in layout.units for place in layout.places(unit)]
    return [place.size_bytes for unit, place in places if not layout.shared(unit, place)]


def bound_of(kind: str, fleet: CalibratedFleet, checkpoint: str | None) -> tuple[str, Bound | None]:
    """(name, bound) of loads from this kind of source."""
    pieces, device = pieces_of(fleet), str(fleet.model["device"])
    on_gpu = device.startswith("cuda")
    if kind == "ssd":
        return ("files into memory", FileRead(Path(checkpoint))) if checkpoint else ("", None)
    if kind == "host" and on_gpu:
        return "pinned memory to GPU", DeviceCopy(pieces, device, within=False)
    if kind == "replica" and on_gpu and fleet.transport in DIRECT:
        return "within the GPU", DeviceCopy(pieces, device, within=True)
    if kind == "replica" and fleet.transport in OVER_SOCKETS:
        return "over loopback", Loopback(sum(pieces), min(sum(pieces), MOST_BLOCK_BYTES))
    return "memory to memory", MemoryCopy(pieces)


def measured(fleet: CalibratedFleet, checkpoint: str | None) -> Iterator[Turns]:
    """Each way's turns, of worker 0; before these how long the two took to start."""
    with WorkerPool(fleet.workers, fleet.model, fleet.seed, fleet.batch_size) as pool:
        pool.wait_ready(TIMEOUT_S)
        opens = [
            Open(
                slot=slot,
                kv_bytes=fleet.kv_bytes,
                warm=True,
                host=slot == 0,
                paths=None,
                every_step=False,
                transport=fleet.transport,
            )
            for slot in range(fleet.workers)
        ]
        took_s, addresses = starts_of(pool, opens, OPEN_S)
        print(f"memory of a worker: {took_s[0]:.1f} s with a copy on the host, {took_s[1]:.1f} s without")
        layers = addresses[0]["layers"][0]
        for name, source in sources_of(fleet).items():
            title = f"{name} ({fleet.transport})" if source[1] else name
            with ahead_of_other_work([worker.process.pid for worker in pool.workers]) as ahead:
                bound_name, bound = bound_of(source[0], fleet, checkpoint)
                rates, raw = in_turn(partial(load_rate, pool, layers, source, TIMEOUT_S), bound)
            if isinstance(bound, Loopback):
                bound.close()
            yield Turns(title if ahead else f"{title}, disturbed", rates, bound_name, raw)


def in_turn(load: Callable[[], tuple[float, int]], bound: Bound | None) -> tuple[list[float], list[float]]:
    """Bytes/s of loads and of their bound, after one of each that is not counted."""
    _, size_bytes = load()
    if bound is not None:
        bound.rate()
    rates, raw = [], []
    for _ in range(REPEATS if size_bytes < LARGE_BYTES else REPEATS_OF_LARGE):
        rates.append(load()[0])
        if bound is not None:
            raw.append(bound.rate())
    return rates, raw


if __name__ == "__main__":
    command("benchmarks.loads", __doc__, main)
