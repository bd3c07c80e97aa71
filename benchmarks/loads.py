"""How fast a worker gets a model's parameters from the disk, the host's copy and another worker.

python -m benchmarks.loads [KEY=VALUE ...]
    # keys of realexec run: model=, model.checkpoint=, device=, transport=

Two workers of `realexec` are started, one with a copy of the model on its host. It has all parameters three
times by each way, layer by layer as a run does. Beside it what the machine moves without any of this code:
one block of memory to another, pinned memory to the GPU, and the checkpoint's file read once more.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.command import command
from realexec.calibration.calibrate import TIMEOUT_S, CalibratedFleet, sources_of
from realexec.calibration.grid import plan_of
from realexec.calibration.links import copies_of, starts_of
from realexec.calibration.raw import raw_rates
from realexec.driver.processes import WorkerPool
from realexec.wire.messages import Open
from servetwin.config.compose.compose import load_config
from servetwin.run.calibrated import fleet_of
from servetwin.run.real_run import require_torch

REPEATS = 3
# A host's copy and a replica of 8 billion parameters, on a machine whose memory is new.
OPEN_S = 2 * TIMEOUT_S
_FILE_BYTES = 16 << 20


def main(words: list[str]) -> int:
    """Exit status 0, whatever the rates are."""
    config = load_config(["workers=2", "out=out/none", *words], "realexec")
    require_torch()
    fleet = fleet_of(config, plan_of(1, 16, 16, 1, True))
    for name, rate in raw_rates(5, str(fleet.model["device"])).items():
        row(f"raw: {name}", rate)
    if config.model.checkpoint is not None:
        row("raw: the checkpoint's files, read by one thread", read_rate(Path(config.model.checkpoint)))
    for name, rate in measured(fleet):
        row(name, rate)
    return 0


def row(name: str, rate: float) -> None:
    """Print it."""
    print(f"{name:60s} {rate / 1e9:9.2f} GB/s", flush=True)


def read_rate(folder: Path) -> float:
    """Bytes/s, from the page cache where the files are in it."""
    block, began_s, size_bytes = bytearray(_FILE_BYTES), time.perf_counter(), 0
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb", buffering=0) as opened:
            while got := opened.readinto(block):
                size_bytes += got
    return size_bytes / (time.perf_counter() - began_s)


def measured(fleet: CalibratedFleet) -> Iterator[tuple[str, float]]:
    """(way, bytes/s) of worker 0; before these how long the two took to start."""
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
            rates: dict[str, Any] = copies_of(pool, layers, source, REPEATS, TIMEOUT_S)
            spread = f"{rates['p10_bytes_per_s'] / 1e9:.2f} to {rates['p90_bytes_per_s'] / 1e9:.2f}"
            yield f"{name} ({fleet.transport if source[1] else 'own'}; {spread})", rates["median_bytes_per_s"]


if __name__ == "__main__":
    command("benchmarks.loads", __doc__, main)
