"""The front end of servers over HTTP, where it shows: the client's TTFT less what engines counted."""

from collections.abc import Sequence

from realexec.http.engine_times import SOURCE, EngineTimes, times_of_all
from realexec.http.probe import Server
from servetwin.results.measured_front_end import MeasuredFrontEnd
from servetwin.results.metrics import RunMetrics


def front_end_of(
    servers: Sequence[Server],
    timeout_s: float,
    before: EngineTimes | None,
    metrics: RunMetrics,
    warmup: RunMetrics | None,
) -> MeasuredFrontEnd:
    """Return what the run's requests took around the engines, by the servers' counters before it and now."""
    if warmup is not None:
        return MeasuredFrontEnd(why="servers count warm-up requests with the others")
    columns = metrics.columns()
    finished = len(columns["request"])
    if before is None or not finished:
        return MeasuredFrontEnd(why=f"no server counts {SOURCE}" if before is None else "no request finished")
    now = times_of_all(servers, timeout_s, before.requests + finished)
    if now is None:
        return MeasuredFrontEnd(why=f"a server no longer counts {SOURCE}")
    run = now - before
    if run.requests != finished:
        return MeasuredFrontEnd(
            why=f"the servers counted {run.requests} requests and {finished} finished here: others use them, "
            "or requests moved between them"
        )
    engine_ms = 1e3 * run.first_token_s / run.requests
    return MeasuredFrontEnd(finished, float(columns["ttft_ms"].mean()), engine_ms, SOURCE)
