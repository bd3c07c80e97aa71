"""For how many steps a parabola surely stays at or above zero, in integers."""

from math import sqrt


def rounds_not_negative(value: int, change: int, curve: int, rounds: int) -> int:
    """How many k from 0 on, below ``rounds``, surely have value + change k + curve k (k - 1) / 2 >= 0."""
    if value < 0 or rounds < 1:
        return 0
    if curve >= 0:
        return rounds if change >= 0 else min(rounds, value // -change + 1)
    last = rounds - 1
    if value + change * last + (curve * (last * (last - 1)) >> 1) >= 0:
        return rounds  # it lies above a chord
    half = change - curve / 2
    last = min(last, int((half + sqrt(half * half - 2.0 * curve * value)) / -curve))
    while value + change * last + (curve * (last * (last - 1)) >> 1) < 0:
        last -= 1
    return last + 1
