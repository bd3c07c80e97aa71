"""The faults of a run, and which of their settings contradict each other."""

from dataclasses import dataclass
from typing import Final

from servetwin.config.key import NOT_NEGATIVE, POSITIVE, Range, key
from serving.vocabulary.errors import UserError

MOST_PER_HOUR: Final = 1e6  # more than one a second for each part of the largest cluster
PER_HOUR: Final = Range(low=0, high=MOST_PER_HOUR)
ONE_OF: Final = {"one_replica": "replica", "one_host": "host", "one_link": "link", "one_ssd": "ssd"}
RATES: Final = ("replica_per_hour", "host_per_hour", "link_per_hour", "ssd_per_hour")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultsConfig:
    """The losses of a run: ``none``, one component, those ``listed``, or ``drawn`` at mean rates.

    ``scheduler`` is the only one that comes back.
    """

    name: str = key("the chosen option")
    at_s: float | None = key(
        "seconds until the loss",
        default=None,
        within=NOT_NEGATIVE,
        options=(*ONE_OF, "scheduler"),
        required=True,
    )
    duration_s: float | None = key(
        "seconds from the loss of the global scheduler until it works again",
        default=None,
        within=POSITIVE,
        options=("scheduler",),
        required=True,
    )
    replica: int | None = key(
        "number of the lost replica",
        default=None,
        within=NOT_NEGATIVE,
        options=("one_replica",),
        required=True,
    )
    host: int | None = key(
        "number of the lost host", default=None, within=NOT_NEGATIVE, options=("one_host",), required=True
    )
    link: str | None = key(
        "name of the lost cable: `host0/nic1`, `leaf0-spine1`",
        default=None,
        options=("one_link",),
        required=True,
    )
    ssd: int | None = key(
        "number of the host whose SSD is lost",
        default=None,
        within=NOT_NEGATIVE,
        options=("one_ssd",),
        required=True,
    )
    events: str | None = key(
        "`AT_S:WHAT:WHICH` joined by +, such as `10:replica:3+20:link:host0/nic1`; of the global scheduler "
        "`AT_S:scheduler:DURATION_S`",
        default=None,
        options=("listed",),
        required=True,
    )
    replica_per_hour: float | None = key(
        "losses of replicas per hour, whole cluster; one of the four is above 0",
        default=None,
        within=PER_HOUR,
        options=("drawn",),
    )
    host_per_hour: float | None = key("the same of hosts", default=None, within=PER_HOUR, options=("drawn",))
    link_per_hour: float | None = key("the same of cables", default=None, within=PER_HOUR, options=("drawn",))
    ssd_per_hour: float | None = key("the same of SSDs", default=None, within=PER_HOUR, options=("drawn",))
    notice_s: float | None = key(
        "seconds of [notice](../how-to/FAULTS.md#a-notice-before-a-loss) before a replica or "
        "a host is lost; null: none",
        default=None,
        within=NOT_NEGATIVE,
        options=("one_replica", "one_host", "listed", "drawn"),
    )


NO_FAULTS: Final = FaultsConfig(name="none")


def check_faults(faults: FaultsConfig, kind: str) -> None:
    """Refuse settings that contradict each other, with a UserError."""
    if kind == "realexec" and faults != NO_FAULTS:
        raise UserError(
            f"faults={faults.name} is for simulations: leave it out, for real workers fail by themselves"
        )
    if faults.name == "drawn" and not any(getattr(faults, key) for key in RATES):
        raise UserError(
            f"faults=drawn draws nothing: write a number above 0 as faults.{RATES[0]} or another rate"
        )
