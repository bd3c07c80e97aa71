"""A run of decode steps in closed form, exact to the nanosecond.

Step i = 0..k-1 costs ``first + slope * i`` in fixed point (ns with 24 fraction bits); the boundary after j
steps is at ``(start + cost(j)) >> 24`` ns. All values are integers, so cutting a run at any boundary and
continuing from there gives the same boundaries.
"""

from math import sqrt


def steps_to_reach(first: int, slope: int, fixed: int) -> int:
    """The least number of steps, at least 1, whose cost is at least ``fixed``."""
    if fixed <= first:
        return 1
    if slope == 0:
        return -(-fixed // first)
    # Solve slope/2 j^2 + (first - slope/2) j = fixed in floats, then correct in integers.
    half = first - slope / 2
    steps = int(2 * fixed / (half + sqrt(half * half + 2.0 * slope * fixed))) or 1
    cost = steps * first + slope * (steps * (steps - 1) >> 1)
    while cost < fixed:
        cost += first + slope * steps
        steps += 1
    while steps > 1:
        cost -= first + slope * (steps - 1)
        if cost < fixed:
            break
        steps -= 1
    return steps
