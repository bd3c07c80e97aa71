"""Dispersion of key stages over hosts under contention: gradient steps on KL(P || Q), Eq. 8 to 10."""

from collections.abc import Sequence
from math import log
from typing import Final

from policies.quart.settings import PlacementSettings

# Rounding of sums of shares; a host whose limit is below it gets no share.
_ROUNDING: Final = 1e-9


def divergence(shares: Sequence[float], ideal: Sequence[float]) -> float:
    """KL(P || Q), Eq. 8."""
    return sum(p * log(p / q) for p, q in zip(shares, ideal, strict=True) if p > 0)


def uniform_within(limits: Sequence[float]) -> tuple[float, ...]:
    """The most even shares that exceed no limit and sum to 1: Q, uniform if every limit allows it.

    Raises ValueError if the limits sum to less than 1.
    """
    if sum(limits) < 1 - _ROUNDING:
        raise ValueError(f"the limits of all hosts sum to {sum(limits):g}: shares cannot sum to 1")
    open_hosts, left = set(range(len(limits))), 1.0
    while True:
        even = left / len(open_hosts)
        full = {one for one in open_hosts if limits[one] < even - 1e-15}
        if not full or full == open_hosts:
            break
        open_hosts -= full
        left -= sum(limits[one] for one in full)
    return tuple([even if one in open_hosts else limits[one] for one in range(len(limits))])


def dispersed(
    shares: Sequence[float], limits: Sequence[float], settings: PlacementSettings | None = None
) -> tuple[float, ...]:
    """P after the gradient steps: it approaches the most even shares that the limits allow.

    P begins at ``shares`` + ``start``. After each step of Eq. 10 all shares are shifted by the same amount,
    and cut off at 0 and at their limit, until they sum to 1. Dividing by their sum instead would undo the
    step: near the uniform P the 1 of the gradient 1 + log(P/Q) then cancels all of it. A step that comes no
    closer is repeated at half its rate: where P is near 0 its logarithm has no bound, and P would swing for
    ever. A uniform P never moves.
    """
    settings = settings or PlacementSettings()
    ideal = uniform_within(limits)
    hosts = [one for one in range(len(limits)) if ideal[one] > _ROUNDING]
    bounds, goal = [limits[one] for one in hosts], [ideal[one] for one in hosts]
    found = _shifted([shares[one] + settings.start for one in hosts], bounds)
    apart, rate = divergence(found, goal), settings.rate
    for _ in range(settings.steps):
        if apart < settings.tolerance:
            break
        stepped = _shifted(
            [p - rate * (1 + log(max(p, settings.start * q) / q)) for p, q in zip(found, goal, strict=True)],
            bounds,
        )
        closer = divergence(stepped, goal)
        if closer < apart:
            found, apart = stepped, closer
        else:
            rate /= 2
    result = [0.0] * len(limits)
    for one, share in zip(hosts, found, strict=True):
        result[one] = share
    return tuple(result)


def _shifted(shares: Sequence[float], bounds: Sequence[float]) -> list[float]:
    """The nearest shares that sum to 1: each moved by the same amount, cut off at 0 and at its bound."""
    low, high = -max(shares), max(bounds) - min(shares)
    for _ in range(60):
        middle = (low + high) / 2
        total = sum([min(max(one + middle, 0.0), most) for one, most in zip(shares, bounds, strict=True)])
        low, high = (middle, high) if total < 1 else (low, middle)
    return [min(max(one + high, 0.0), most) for one, most in zip(shares, bounds, strict=True)]
