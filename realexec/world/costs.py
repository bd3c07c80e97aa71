"""The costs of a run beside the requested steps: CPU time of the driver and of its workers."""

import time
from collections.abc import Sequence
from typing import Any

from realexec.world.report import CpuTime


class Costs:
    """Counts CPU time from the moment all workers are ready. Only the driver's thread calls it."""

    def __init__(self, workers: Sequence[Any]) -> None:
        self._workers = workers
        self._driver_ns = time.process_time_ns()
        self._began_ns = [worker.cpu_ns() for worker in workers]
        self._steps_ns = self._reads_ns = 0

    def stepped(self, cpu_ns: int) -> None:
        """Add CPU time that a worker's compute thread used for steps."""
        self._steps_ns += cpu_ns

    def read(self, cpu_ns: int) -> None:
        """Add CPU time that a worker's data thread used for a read."""
        self._reads_ns += cpu_ns

    def so_far(self) -> CpuTime:
        """Sum up to now. A worker that has exited counts as zero, because its CPU time is not known."""
        used = [worker.cpu_ns() - began for worker, began in zip(self._workers, self._began_ns, strict=True)]
        workers_ns = sum(one for one in used if one > 0)
        driver_ns = time.process_time_ns() - self._driver_ns
        return CpuTime(driver_ns, workers_ns, self._steps_ns, self._reads_ns)
