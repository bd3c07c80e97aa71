"""Whether a run records its load over time, and how often."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class SeriesConfig:
    """``period_s``: seconds between two rows of ``series.parquet``; None: no such file."""

    period_s: float | None


NO_SERIES: Final = SeriesConfig(None)
