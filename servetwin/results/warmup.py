"""Warm-up requests: run before the counted ones and kept out of every metric of requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from servetwin.results.metrics import FINISHED_FIELDS, NS_PER_S, RunMetrics
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.request import Request

if TYPE_CHECKING:
    import numpy as np

SCHEDULED: Final = "scheduled_ns"
INCLUDED_IN: Final = (
    "duration_s, GPU seconds, busy and load shares, energy, instances, loads, links, migrations and series "
    "are of the whole run, warm-up included; latencies, throughput, SLO and counts of requests are without it"
)


class WarmupRecorder:
    """Divides what a driver records: the first ``requests`` ids are warm-up, all others counted.

    Implements serving.vocabulary.recorder.Recorder. Counted requests begin when all warm-up requests have
    ended, so that every gap between tokens until then is a warm-up request's.
    """

    def __init__(self, counted: RunMetrics, requests: int) -> None:
        self._counted, self._requests, self._left = counted, requests, requests
        self.warmup = RunMetrics()

    def _of(self, request: Request) -> RunMetrics:
        if request.id >= self._requests:
            return self._counted
        self._left -= 1
        return self.warmup

    # Positional, like that of RunMetrics.
    def finished(
        self,
        request: Request,
        output_tokens: int,
        first_token_ns: int,
        finish_ns: int,
        replica: int,
        preemptions: int,
    ) -> None:
        """Record a request that produced its last token."""
        self._of(request).finished(request, output_tokens, first_token_ns, finish_ns, replica, preemptions)

    def refused(self, request: Request, now_ns: int, reason: str) -> None:
        """Record a rejected request."""
        self._of(request).refused(request, now_ns, reason)

    def failed(self, request: Request, now_ns: int, reason: str) -> None:
        """Record a lost request."""
        self._of(request).failed(request, now_ns, reason)

    def gaps(self, first_fixed: int, slope_fixed: int, steps: int, sequences: int) -> None:
        """Record gaps between tokens."""
        metrics = self.warmup if self._left else self._counted
        metrics.gaps(first_fixed, slope_fixed, steps, sequences)

    def busy(self, replica: int, busy_ns: int) -> None:
        """Set how long a replica executed steps, those of warm-up requests included."""
        self._counted.busy(replica, busy_ns)


def recorder_of(metrics: RunMetrics, warmup_requests: int) -> tuple[Recorder, RunMetrics | None]:
    """Return what a driver records into, and the metrics of the warm-up requests if there are any."""
    if not warmup_requests:
        return metrics, None
    recorder = WarmupRecorder(metrics, warmup_requests)
    return recorder, recorder.warmup


def counted_from_s(metrics: RunMetrics, columns: Mapping[str, np.ndarray]) -> float:
    """Return when the first counted request was sent, in seconds of the run."""
    import numpy as np

    sent = [columns["arrival_ns"], np.asarray(metrics.unserved.columns()["arrival_ns"])]
    return min((int(times.min()) for times in sent if len(times)), default=0) / NS_PER_S


def warmup_section(
    warmup: RunMetrics | None, metrics: RunMetrics, columns: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Return ``warmup`` of summary.json; empty for a run without."""
    if warmup is None:
        return {}
    finished, unserved = len(warmup.columns()["request"]), len(warmup.unserved)
    return {
        "warmup": {
            "requests": finished + unserved,
            "finished": finished,
            "seconds": counted_from_s(metrics, columns),
            "included_in": INCLUDED_IN,
        }
    }


def with_warmup(columns: dict[str, np.ndarray], warmup: RunMetrics | None) -> dict[str, np.ndarray]:
    """Return the columns of FINISHED_FIELDS of all requests of the run, for its series and its GPUs' use."""
    if warmup is None:
        return columns
    import numpy as np

    first = warmup.columns()
    return {name: np.concatenate([first[name], columns[name]]) for name in FINISHED_FIELDS}


def scheduled_of(every: Mapping[str, np.ndarray], columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return ``scheduled_ns`` of the counted requests, which series add to ``every``, those of the run.

    Empty if the run has no series.
    """
    if SCHEDULED not in every:
        return {}
    counted = len(columns["request"])
    return {SCHEDULED: every[SCHEDULED][len(every["request"]) - counted :]}
