"""The costs of a stage's passes, as workers report them: four numbers for each stage."""

from typing import NamedTuple


class StageCosts(NamedTuple):
    """Costs of a stage's passes. ``read_bytes``: read from the stage before. ``cpu_ns``: CPU time of the
    compute thread; ``read_cpu_ns``: CPU time of the reading thread."""

    busy_ns: int
    read_bytes: int
    cpu_ns: int
    read_cpu_ns: int
