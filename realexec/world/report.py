"""The results of a wall-clock run."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Generation:
    """A finished request's token ids.

    The first ``exact_tokens`` generated tokens come before any recompute, so they must equal an undisturbed
    run. Later ones may differ, because recomputed keys and values may differ in their last bits.
    """

    request: int
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    exact_tokens: int
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Counts of loads, transfers and passes over layers.

    ``units_forwarded``: units of parameters pulled from a source that was still loading.
    ``live_layer_counts``: the numbers of layers that were loaded when passes over some of them began.
    ``handoffs``: requests that continued on another worker with their KV, other than by ``migrations``.
    ``stages``: layer ranges of a model in stages that ran ``stage_passes``.
    """

    loads: int = 0
    loads_stopped: int = 0
    loaded_bytes: int = 0
    units_forwarded: int = 0
    live_passes: int = 0
    live_layer_counts: tuple[int, ...] = ()
    migrations: int = 0
    handoffs: int = 0
    kv_bytes: int = 0
    activation_bytes: int = 0
    stages: int = 0
    stage_passes: int = 0


@dataclass(frozen=True, slots=True)
class CpuTime:
    """CPU time of a run in ns: of the driver's process, of the workers' processes, and of the steps and the
    reads of parameters and KV that the workers' time contains."""

    driver_ns: int = 0
    workers_ns: int = 0
    steps_ns: int = 0
    reads_ns: int = 0

    @property
    def share_beside_steps(self) -> float | None:
        """CPU time of the driver, and of workers outside steps, over that of steps; None without steps."""
        if not self.steps_ns:
            return None
        return (self.driver_ns + max(self.workers_ns - self.steps_ns, 0)) / self.steps_ns

    @property
    def share_of_messages(self) -> float | None:
        """The same share without the reads: the cost of the driver and of messages."""
        if not self.steps_ns:
            return None
        return (self.driver_ns + max(self.workers_ns - self.steps_ns - self.reads_ns, 0)) / self.steps_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Counts, token ids and the driver's own costs.

    ``wall_s`` counts from the moment all workers were ready; ``start_s`` is the time until then.
    ``decide_ns`` has one entry per handled event, ``lateness_ns`` one per arrival (how long after
    ``arrival_ns`` it was taken); ``taken_ns``: when each request was, by its number. ``places``: where each
    worker ran, as text; ``one_host``: whether all ran on the driver's. ``pinned``: whether a GPU's driver has
    pinned each worker's pages; None: it has no GPU.
    """

    wall_s: float
    start_s: float
    arrived: int
    refused: int
    failed: int
    preemptions: int
    lost: tuple[tuple[int, str], ...]
    generations: dict[int, Generation]
    decide_ns: "array[int]"
    lateness_ns: "array[int]"
    moved: Moved = Moved()
    cpu: CpuTime = CpuTime()
    places: tuple[str, ...] = ()
    one_host: bool = True
    pinned: tuple[bool | None, ...] = ()
    taken_ns: Mapping[int, int] = field(default_factory=dict)

    @property
    def finished(self) -> int:
        """Requests that got their last token."""
        return len(self.generations)

    @property
    def decide_ns_mean(self) -> float:
        """Mean time in ``controller.handle``."""
        return sum(self.decide_ns) / max(len(self.decide_ns), 1)

    @property
    def decide_ns_p99(self) -> int:
        """99th percentile (nearest rank) of the time in ``controller.handle``."""
        return percentile(self.decide_ns, 99)

    @property
    def lateness_ns_p99(self) -> int:
        """99th percentile (nearest rank) of how late arrivals were handled."""
        return percentile(self.lateness_ns, 99)


def percentile(values: "array[int]", percent: int) -> int:
    """Nearest-rank percentile; 0 when there are no values."""
    ranked = sorted(values)
    return ranked[(len(ranked) * percent + 99) // 100 - 1] if ranked else 0
