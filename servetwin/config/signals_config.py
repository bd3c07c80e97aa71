"""When the metrics are taken that a scaler reads, and when they reach it."""

from dataclasses import dataclass
from typing import Final

from servetwin.config.key import NOT_NEGATIVE, Range, key
from servetwin.config.readers import SCALER

_PERIOD: Final = Range(low=0.001, high=86_400)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalsConfig:
    """Scrapes of monitoring (``serving.protocols.signals``), for scalers that read them."""

    scrape_s: float | None = key(
        "seconds between two scrapes of the metrics that a scaler reads; null: as the scaler declares, or 15",
        default=None,
        within=_PERIOD,
        read_by=(SCALER,),
    )
    window_s: float | None = key(
        "seconds before a scrape over which rates, means and latencies are taken; null: as the scaler "
        "declares, or 60",
        default=None,
        within=_PERIOD,
        read_by=(SCALER,),
    )
    delay_s: float = key(
        "seconds from a scrape to the scaler: the adapter's delay",
        default=0.0,
        within=NOT_NEGATIVE,
        read_by=(SCALER,),
    )


DECLARED: Final = SignalsConfig()
