"""The metrics sink of simulated and real runs: columns and sketches during the run, the summary after it.

Definitions are those of docs/reference/METRICS.md.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any

from servetwin.results.gap_sketch import GAPS_BUFFERED, GapSketch
from servetwin.results.unserved import Unserved
from serving.vocabulary.request import Request

if TYPE_CHECKING:
    import numpy as np

    from servetwin.config.config import SloConfig

    Block = list[np.ndarray]  # one array for each of FINISHED_FIELDS

QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
FINISHED_FIELDS = (
    "request",
    "arrival_ns",
    "prompt_tokens",
    "output_tokens",
    "first_token_ns",
    "finish_ns",
    "replica",
    "preemptions",
)
_ROW = Struct(f"{len(FINISHED_FIELDS)}q")  # as an array of "q" has them
NS_PER_MS = 1e6
NS_PER_S = 1e9


class RunMetrics:
    """Implements serving.vocabulary.recorder.Recorder.

    Only about 40 bytes per finished request and 7 integers per unserved one grow with the run.
    """

    def __init__(self, sent_ns: Callable[[Request], int] | None = None) -> None:
        """``sent_ns``: when clients sent requests that have gone through a front end; None: there is none."""
        self._finished = array("q")
        self._blocks: list[Block] = []  # of requests that finished before those of the buffer
        self._columns: dict[str, np.ndarray] = {}
        self._extend = self._finished.frombytes
        self.gap_sketch = GapSketch()
        self.gaps = self.gap_sketch.add  # saves one call on the hot path
        self._noted = self.gap_sketch.buffer
        self.rejected_reasons: Counter[str] = Counter()
        self.failed_reasons: Counter[str] = Counter()
        self.busy_ns: dict[int, int] = {}
        self.last_failure_ns = 0
        # Requests whose clients gave up; None: clients wait for ever. ``cut_short``: answers were aborted.
        self.given_up: int | None = None
        self.cut_short = False
        self.unserved = Unserved(sent_ns)

    # Positional: called for every request, and keywords cost 90 ns more (timeit).
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
        self._extend(
            _ROW.pack(  # ``extend`` with a tuple takes three times as long
                request.id,
                request.arrival_ns,
                request.prompt_tokens,
                output_tokens,
                first_token_ns,
                finish_ns,
                replica,
                preemptions,
            )
        )
        if len(self._noted) > GAPS_BUFFERED:
            self.gap_sketch.settle()
            self._settle()

    def _settle(self) -> None:
        """Move the buffer's rows into a block of columns, each as narrow as its numbers."""
        import numpy as np

        if not self._finished:
            return
        rows = np.array(self._finished, dtype=np.int64).reshape(-1, len(FINISHED_FIELDS))
        self._blocks.append([_narrow(rows[:, i]) for i in range(len(FINISHED_FIELDS))])
        del self._finished[:]

    def refused(self, request: Request, now_ns: int, reason: str) -> None:
        """Record a rejected request."""
        self.rejected_reasons[reason] += 1
        self.unserved.add(request, now_ns, "rejected", reason)

    def failed(self, request: Request, now_ns: int, reason: str) -> None:
        """Record a lost request."""
        self.failed_reasons[reason] += 1
        self.unserved.add(request, now_ns, "failed", reason)
        self.last_failure_ns = max(self.last_failure_ns, now_ns)

    def timed_out(self, request: Request, now_ns: int, reason: str) -> None:
        """Record a request whose client has given up and does not send it again."""
        self.given_up = (self.given_up or 0) + 1
        self.unserved.add(request, now_ns, "timed_out", reason)
        self.ended_in_vain(now_ns)

    def ended_in_vain(self, now_ns: int) -> None:
        """Record the end of work for a client that has gone away."""
        self.last_failure_ns = max(self.last_failure_ns, now_ns)

    def busy(self, replica: int, busy_ns: int) -> None:
        """Set how long a replica executed steps."""
        self.busy_ns[replica] = busy_ns

    def columns(self) -> dict[str, np.ndarray]:
        """Return one row per finished request by request id: FINISHED_FIELDS, ttft_ms, tpot_ms, e2e_ms."""
        self._settle()
        if self._blocks or not self._columns:
            self._columns = self._sorted()
        return self._columns | _latencies(self._columns)

    def _sorted(self) -> dict[str, np.ndarray]:
        """Return FINISHED_FIELDS by request id; a block's column is given up once it is in the result."""
        import numpy as np

        if self._columns:  # requests have finished since the last call
            self._blocks.insert(0, [self._columns[name] for name in FINISHED_FIELDS])
        blocks, self._blocks = self._blocks, []
        empty = np.empty(0, dtype=np.int64)
        order = np.argsort(np.concatenate([empty, *(block[0] for block in blocks)]), kind="stable")
        columns = {}
        for i, name in enumerate(FINISHED_FIELDS):
            parts = [block[i] for block in blocks]
            columns[name] = np.concatenate(parts or [empty])[order].astype(np.int64, copy=False)
            for block in blocks:
                block[i] = empty
        return columns


def _narrow(values: np.ndarray) -> np.ndarray:
    """Return a copy as integers of 2, 4 or 8 bytes."""
    import numpy as np

    low, high = int(values.min()), int(values.max())
    kinds = (np.int16, np.int32, np.int64)
    kind = next(kind for kind in kinds if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
    return values.astype(kind)


def _latencies(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return ttft_ms, tpot_ms (NaN for one output token) and e2e_ms of requests."""
    import numpy as np

    first, finish, arrival = columns["first_token_ns"], columns["finish_ns"], columns["arrival_ns"]
    decoded = columns["output_tokens"] - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot_ms = (finish - first) / decoded
    tpot_ms /= NS_PER_MS
    tpot_ms[decoded <= 0] = np.nan
    return {
        "ttft_ms": (first - arrival) / NS_PER_MS,
        "tpot_ms": tpot_ms,
        "e2e_ms": (finish - arrival) / NS_PER_MS,
    }


def summarize(
    metrics: RunMetrics,
    columns: dict[str, np.ndarray],
    *,
    dropped: dict[str, int],
    slo: SloConfig,
    gpus: int,
    instances: int,
    counted_from_s: float = 0.0,
) -> dict[str, Any]:
    """Return the part of summary.json that is the same for every run with the same seed.

    ``counted_from_s``: when the first of these requests was sent, if warm-up requests ran before.
    """
    finished = len(columns["request"])
    rejected, failed = metrics.rejected_reasons.total(), metrics.failed_reasons.total()
    lost, timed_out = sum(dropped.values()), metrics.given_up or 0
    span_s = max(_span_s(columns, metrics.last_failure_ns), counted_from_s)
    counted_s = span_s - counted_from_s
    return {
        "requests": {
            "arrived": finished + rejected + failed + timed_out + lost,
            "finished": finished,
            "rejected": rejected,
            "failed": failed,
            "dropped": lost,
            **({} if metrics.given_up is None else {"timed_out": timed_out}),
        },
        "rejected_reasons": dict(sorted(metrics.rejected_reasons.items())),
        "failed_reasons": dict(sorted(metrics.failed_reasons.items())),
        "ttft_ms": spread(columns["ttft_ms"]),
        **_at_the_engine(columns),
        "tpot_ms": spread(columns["tpot_ms"]),
        "itl_ms": _gaps(metrics, columns),
        "e2e_ms": spread(columns["e2e_ms"]),
        "slo": _slo(columns, finished + rejected + failed + timed_out, slo, counted_s),
        "throughput": {
            "req_per_s": per_s(finished, counted_s),
            "output_tokens_per_s": per_s(int(columns["output_tokens"].sum()), counted_s),
        },
        "duration_s": span_s,
        "gpu_seconds": gpus * span_s,
        "gpu_load_share": None,  # a simulation fills it in: it needs the time of a full batch
        "gpu_busy_share": per_s(sum(metrics.busy_ns.values()) / NS_PER_S / instances, span_s),
        "replica_busy_share": [
            metrics.busy_ns[replica] / NS_PER_S / span_s if span_s else 0.0
            for replica in sorted(metrics.busy_ns)
        ],
        "instances": {"mean": float(instances), "max": instances},
        "preemptions": int(columns["preemptions"].sum()),
    }


def per_s(amount: float, seconds: float) -> float | None:
    """Return a rate; None if the time is 0, which a coarse clock may read in a short run."""
    return amount / seconds if seconds else None


def _span_s(columns: dict[str, np.ndarray], last_failure_ns: int) -> float:
    """Return seconds from time 0 (the first arrival's clock) to the last token or failure."""
    finish = columns["finish_ns"]
    return max(int(finish.max()) if len(finish) else 0, last_failure_ns) / NS_PER_S


def spread(values: np.ndarray) -> dict[str, float | None]:
    """Return mean, quantiles (linear interpolation) and max of the existing values."""
    import numpy as np

    values = values[~np.isnan(values)]
    if not len(values):
        return dict.fromkeys(("mean", *QUANTILES, "max"))
    quantiles = np.quantile(values, list(QUANTILES.values()))
    return {
        "mean": float(values.mean()),
        **{name: float(value) for name, value in zip(QUANTILES, quantiles)},
        "max": float(values.max()),
    }


def _at_the_engine(columns: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return TTFT without the server's front end; nothing for an engine that has none."""
    name = "ttft_engine_ms"
    return {name: spread(columns[name])} if name in columns else {}


def _gaps(metrics: RunMetrics, columns: dict[str, np.ndarray]) -> dict[str, float | None]:
    """Return inter-token latency. A request's gaps add up to its decode time, which makes the mean exact.

    Gaps of failed and aborted requests are only in the histogram; with such the mean is the histogram's, too.
    """
    sketch = metrics.gap_sketch.summary_ms(QUANTILES)
    gaps = int((columns["output_tokens"] - 1).sum())
    decode_ns = int((columns["finish_ns"] - columns["first_token_ns"]).sum())
    mean = decode_ns / gaps / NS_PER_MS if gaps else None
    if metrics.failed_reasons or metrics.cut_short:
        mean = metrics.gap_sketch.mean_ms()
    return {"mean": mean, **sketch}


def _slo(
    columns: dict[str, np.ndarray], handed_over: int, slo: SloConfig, span_s: float
) -> dict[str, float | None]:
    """Return shares of the requests that clients sent; those without an answer meet no objective."""
    import numpy as np

    first = columns["ttft_ms"] <= slo.ttft_ms
    # A one-token answer has no time per output token, so it cannot miss that objective.
    rest = np.isnan(columns["tpot_ms"]) | (columns["tpot_ms"] <= slo.tpot_ms)
    good = int((first & rest).sum())

    def share(count: int) -> float | None:
        return count / handed_over if handed_over else None

    return {
        "ttft_ms": slo.ttft_ms,
        "tpot_ms": slo.tpot_ms,
        "ttft_attainment": share(int(first.sum())),
        "tpot_attainment": share(int(rest.sum())),
        "attainment": share(good),
        "goodput_req_per_s": per_s(good, span_s),
    }
