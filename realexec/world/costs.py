"""What a run costs beside the steps that were asked for: CPU time of the driver and of its workers."""

import time
from collections.abc import Sequence
from typing import Any

from realexec.report import CpuTime


class Costs:
    """From the moment all workers are ready. Only the driver's thread calls it."""

    def __init__(self, workers: Sequence[Any]) -> None:
        self._workers = workers
        self._driver_ns = time.process_time_ns()
        self._began_ns = [worker.cpu_ns() for worker in workers]
        self._steps_ns = self._reads_ns = 0

    def stepped(self, cpu_ns: int) -> None:
        """A worker's steps took so much of its compute thread."""
        self._steps_ns += cpu_ns

    def read(self, cpu_ns: int) -> None:
        """A worker's data thread took so much for something that it read."""
        self._reads_ns += cpu_ns

    def so_far(self) -> CpuTime:
        """Until now. Of a worker that is gone nothing is known, and nothing is counted."""
        used = [worker.cpu_ns() - began for worker, began in zip(self._workers, self._began_ns, strict=True)]
        workers_ns = sum(one for one in used if one > 0)
        driver_ns = time.process_time_ns() - self._driver_ns
        return CpuTime(driver_ns, workers_ns, self._steps_ns, self._reads_ns)
