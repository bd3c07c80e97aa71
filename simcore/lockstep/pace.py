"""Which rank of a group is slowest, and for how many steps: all ranks take as long as that one."""

from collections.abc import Sequence

Line = tuple[int, int]
"""(first, slope): step i of a rank would take ``first + i * slope`` by itself, in fixed point."""


def steps_cost(first: int, slope: int, steps: int) -> int:
    """Total cost of ``steps`` steps on a line."""
    return steps * first + slope * (steps * (steps - 1) >> 1)


def slowest(lines: Sequence[Line], steps: int) -> tuple[int, int, int]:
    """(first, slope, steps) of the slowest line, up to the first step in which another one is slower."""
    first, slope = max(lines)
    for other, steeper in lines:
        if steeper > slope:  # it starts lower, or level
            behind = (first - other) // (steeper - slope) + 1
            if behind < steps:
                steps = behind
    return first, slope, steps
