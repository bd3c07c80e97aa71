"""A straight line through measured points, for scalers that fit latencies to loads."""

from collections.abc import Collection


def least_squares(points: Collection[tuple[float, float]]) -> tuple[float, float, float]:
    """(slope, mean of x, mean of y) of the line of least squares; slope 0 if all x are one."""
    count = len(points)
    x, y = sum([one for one, _ in points]) / count, sum([other for _, other in points]) / count
    square = sum([(one - x) ** 2 for one, _ in points])
    slope = sum([(one - x) * (other - y) for one, other in points]) / square if square else 0.0
    return slope, x, y
