"""What real runs measured around the engine: TTFT at the engine and at the client, and their difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from servetwin.results.metrics import NS_PER_MS, QUANTILES

if TYPE_CHECKING:
    import numpy as np

_NAME = "ttft_engine_ms"


def at_the_engine(columns: Mapping[str, np.ndarray], taken_ns: Mapping[int, int]) -> dict[str, np.ndarray]:
    """Return ``entered_ns`` and ``ttft_engine_ms`` of own workers' requests, which the driver took then."""
    if not taken_ns:
        return {}
    import numpy as np

    entered_ns = np.array([taken_ns[request] for request in columns["request"].tolist()], dtype=np.int64)
    return {"entered_ns": entered_ns, _NAME: (columns["first_token_ns"] - entered_ns) / NS_PER_MS}


@dataclass(frozen=True, slots=True)
class MeasuredFrontEnd:
    """Means over the requests of a run on servers; ``why``: why the engine's is not known."""

    requests: int = 0
    client_ms: float | None = None
    engine_ms: float | None = None
    source: str = ""
    why: str = ""

    def ttft_section(self) -> dict[str, Any]:
        """Return the mean TTFT at the engine as a spread whose other values are not known."""
        if self.engine_ms is None:
            return {}
        return {_NAME: {**dict.fromkeys(("mean", *QUANTILES, "max")), "mean": self.engine_ms}}

    def section(self) -> dict[str, Any]:
        """Return ``front_end`` of the summary's ``real``."""
        if self.engine_ms is None or self.client_ms is None:
            return {"front_end": {"missing": self.why}}
        told = {"requests": self.requests, "source": self.source}
        return {"front_end": told | {"around_ms_mean": self.client_ms - self.engine_ms}}
