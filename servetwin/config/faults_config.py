"""The faults of a run, and which of their settings contradict each other."""

from dataclasses import dataclass, fields
from typing import Final

from servetwin.config.ranges import Range
from serving.vocabulary.errors import UserError

MOST_PER_HOUR: Final = 1e6  # more than one a second for each part of the largest cluster
_NUMBER: Final = Range(low=0)
_RATE: Final = Range(low=0, high=MOST_PER_HOUR)
_RANGES: Final[dict[str, Range]] = {
    "at_s": _NUMBER,
    "replica": _NUMBER,
    "host": _NUMBER,
    "ssd": _NUMBER,
    "replica_per_hour": _RATE,
    "host_per_hour": _RATE,
    "link_per_hour": _RATE,
    "ssd_per_hour": _RATE,
    "notice_s": _NUMBER,
}
RATES: Final = ("replica_per_hour", "host_per_hour", "link_per_hour", "ssd_per_hour")
_OPTIONAL: Final = (*RATES, "notice_s")


@dataclass(frozen=True, slots=True)
class FaultsConfig:
    """``none``: no faults; everything else is null.

    ``one_replica``, ``one_host``, ``one_link``, ``one_ssd``: this one is lost at ``at_s``. ``listed``: the
    faults of ``events``, ``AT_S:WHAT:WHICH`` with + between. ``drawn``: so many of each kind an hour on
    average, in the whole cluster, from a random stream of the run's seed. ``notice_s``: how long before the
    loss of a replica or a host the system receives a notice.
    """

    name: str
    at_s: float | None
    replica: int | None
    host: int | None
    link: str | None
    ssd: int | None
    events: str | None
    replica_per_hour: float | None
    host_per_hour: float | None
    link_per_hour: float | None
    ssd_per_hour: float | None
    notice_s: float | None = None


NO_FAULTS: Final = FaultsConfig("none", *[None] * 10)
ONE_OF: Final = {"one_replica": "replica", "one_host": "host", "one_link": "link", "one_ssd": "ssd"}
_USED: Final[dict[str, tuple[str, ...]]] = {
    "none": (),
    **{name: ("at_s", what) for name, what in ONE_OF.items()},
    "one_replica": ("at_s", "replica", "notice_s"),
    "one_host": ("at_s", "host", "notice_s"),
    "listed": ("events", "notice_s"),
    "drawn": (*RATES, "notice_s"),
}


def check_faults(faults: FaultsConfig, kind: str) -> None:
    """Refuse settings that are out of range or contradict each other, with a UserError."""
    used = _USED.get(faults.name)
    if used is None:
        raise UserError(f"faults={faults.name} is unknown: write one of {', '.join(_USED)}")
    if kind == "realexec" and faults != NO_FAULTS:
        raise UserError(
            f"faults={faults.name} is for simulations: leave it out, for real workers fail by themselves"
        )
    for field in fields(faults)[1:]:
        _check_value(faults, field.name, used)
    if faults.name == "drawn" and not any(getattr(faults, key) for key in RATES):
        raise UserError(
            f"faults=drawn draws nothing: write a number above 0 as faults.{RATES[0]} or another rate"
        )


def _check_value(faults: FaultsConfig, key: str, used: tuple[str, ...]) -> None:
    value = getattr(faults, key)
    if value is None:
        if key in used and key not in _OPTIONAL:
            raise UserError(f"faults.{key}=null does not fit faults={faults.name}: write faults.{key}=VALUE")
        return
    if key not in used:
        fits = " or ".join(f"faults={name}" for name, keys in _USED.items() if key in keys)
        raise UserError(
            f"faults.{key}={value} does not fit faults={faults.name}: leave it out or write {fits}"
        )
    if key in _RANGES and value not in _RANGES[key]:
        raise UserError(f"faults.{key}={value} is out of range: write a number {_RANGES[key]}")
