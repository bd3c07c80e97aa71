"""Settings in which running requests migrate: drawn ones, and one that is always busy."""

from dataclasses import replace

from hypothesis import strategies as st

from serving.protocols.load_report import ReportsAt
from tests.worlds.migrating import Setting
from tests.worlds.naive_engine import Case
from tests.worlds.strategies import cases
from tests.worlds.toy_rows import ToyRows

NS = 1 << 24
ROWS = ToyRows(5 * NS, NS // 3, NS // 50, 6 * NS, NS // 5)
BUSY = Case(
    "prefill_first", 3, 4, 40, 1, 8, 32, "round_robin",
    tuple((n * 7, 5 + n % 9, 30 + (n * 37) % 90, 120) for n in range(14)), ROWS,
)  # fmt: skip
# (asynchronous, when instances tell how they stand): an engine that chooses a step early has no step ends.
KINDS_OF_REPORTS = [
    (False, "changes"), (True, "changes"), (False, "step_ends"), (False, "ticks"), (True, "ticks"),
]  # fmt: skip


def with_reports(setting: Setting, at: ReportsAt) -> Setting:
    """Told so, or of changes where that cannot be."""
    return replace(setting, reports_at="changes" if at == "step_ends" and setting.case.asynchronous else at)


@st.composite
def migrating(draw: st.DrawFn) -> Setting:
    """Any case on 2 to 4 instances; stages last less than a step or many of them.

    Nobody waits longer than 200 steps for the next arrival: pairs are made once in a few steps all the time.
    """
    case = draw(cases())
    step_ns = max(1, case.rows.intercept >> 24)
    now_ns, last_ns, requests = 0, 0, []
    for arrival_ns, *lengths in case.requests:
        now_ns += min(arrival_ns - last_ns, 200 * step_ns)
        last_ns = arrival_ns
        requests.append((now_ns, *lengths))
    case = replace(case, replicas=draw(st.integers(2, 4)), requests=tuple(requests))
    mode = draw(st.sampled_from(("live", "live", "live", "stop_and_copy", "recompute")))
    return Setting(
        case,
        seed=draw(st.integers(0, 2**16)),
        mode=mode,
        last_stage_blocks=draw(st.sampled_from((1, 1, 2, 16))),
        last_within_step=draw(st.booleans()),
        max_stages=draw(st.integers(1, 4)),
        control_ns=draw(st.sampled_from((0, 1, step_ns, 10 * step_ns))),
        token_ns=step_ns * draw(st.sampled_from((0.02, 0.2, 1.0, 5.0))),
        period_ns=step_ns * draw(st.sampled_from((1, 3, 9))),
        slowdown_ppm=draw(st.sampled_from((0, 10_000, 700_000))),
        victims_reserve=0 if mode == "recompute" else draw(st.sampled_from((0, 0, 2, 5))),
    )
