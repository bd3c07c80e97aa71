"""Refuses times that no run can last: the simulated clock counts nanoseconds in 63 bits."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

from servetwin.config.config import RunConfig
from servetwin.config.overrides import canonical
from serving.vocabulary.errors import UserError

# 31 years, as for arrivals of a trace: the simulated clock counts nanoseconds in 63 bits, 292 years.
MAX_TIME_S: Final = 1e9
_PER_S: Final = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


def check_durations(config: RunConfig) -> None:
    """Refuse every key of the configuration whose unit is a time and whose value is beyond ``MAX_TIME_S``."""
    for key, value in _numbers(dataclasses.asdict(config)):
        most = MAX_TIME_S * _PER_S[key.rpartition("_")[2]]
        if not abs(value) <= most:
            raise UserError(
                f"{canonical(key)}={value:g} is out of range: write a number up to {most:g} (31 years)"
            )


def _numbers(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}.")
        elif _is_time(name):
            items = value if isinstance(value, list) else [value]
            yield from ((prefix + name, one) for one in items if type(one) in (int, float))


def _is_time(name: str) -> bool:
    """Return whether the name ends in a unit of time, and is no rate (``_per_s``)."""
    before, _, unit = str(name).rpartition("_")
    return unit in _PER_S and before != "" and not before.endswith("per")
