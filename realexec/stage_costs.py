"""What passes of a stage took, as workers tell it: four numbers for each stage."""

from typing import NamedTuple


class StageCosts(NamedTuple):
    """What a stage's passes took. ``read_bytes``: of the stage before. ``cpu_ns``: of the thread that
    computes; ``read_cpu_ns``: of the one that read."""

    busy_ns: int
    read_bytes: int
    cpu_ns: int
    read_cpu_ns: int
