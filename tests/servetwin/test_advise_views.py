"""What a scaler sees of a record, and what it says to it: numbers that can be computed by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from policies.scaling.hpa import Hpa
from servetwin.advising.advice import Advice, advise
from servetwin.advising.record import Record
from servetwin.advising.recorded_view import RecordedViews
from serving.elastic.setup import ElasticSetup, ModelLimits
from serving.elastic.signals import SignalRules
from serving.parameters.cluster_map import ClusterMap
from serving.protocols.scaling import ScalingView
from serving.protocols.signals import InstanceSignals, RoleMeans, Signals
from serving.vocabulary.measured import Latency, Measured
from serving.vocabulary.units import NS_PER_S

LIMITS = ModelLimits(
    bounds={"both": (1, 20)}, prefill_tokens_per_s=1000.0, kv_tokens=10_000, kv_tokens_per_s=1e4, pass_ns=1
)
STEP_S = 15.0


def record_of(of_instances: dict[str, np.ndarray] | None = None, **columns: Sequence[float]) -> Record:
    known = {name: np.array(values, dtype=np.float64) for name, values in columns.items()}
    count = len(next(iter(known.values())))
    return Record(
        at_s=1.7e9 + STEP_S * np.arange(count, dtype=np.float64),
        columns=known,
        of_instances=of_instances or {},
    )


def views_of(record: Record, window_s: float = 60.0) -> RecordedViews:
    return RecordedViews(record, "m", LIMITS, window_s=window_s, prefix_hit_share=0.0)


def hpa_on(record: Record, delay_s: float = 0.0, **parameters: float) -> Advice:
    step_ns = round(STEP_S * NS_PER_S)
    rules = SignalRules(
        scrape_ns=step_ns, window_ns=4 * step_ns, delay_ns=round(delay_s * NS_PER_S), tick_ns=step_ns
    )
    cluster = ClusterMap(gpus_per_host=1, ports=(), host_ports=(), scale_up_bytes_per_s=0, stores=())
    setup = ElasticSetup(
        cluster=cluster, prototypes={}, limits={"m": LIMITS}, period_ns=step_ns, park_ns=0, signals=rules
    )
    return advise(record, Hpa(**parameters), setup, "m", 0.0)  # type: ignore[arg-type]


def wanted(advice: Advice) -> list[int]:
    return [decision.wanted for decision in advice.decisions]


def test_hpa_wants_the_ratio_of_metric_and_target_from_the_recorded_count() -> None:
    record = record_of(replicas=[2, 2, 2, 3, 3], waiting=[0, 20, 10, 15, 60])
    # 10 per instance over 5: twice as many; at the target: as many; 5 per instance; then four at most.
    assert wanted(hpa_on(record)) == [4, 2, 3, 7]
    assert [decision.at_s for decision in hpa_on(record).decisions] == [15, 30, 45, 60]


def test_late_metrics_are_those_of_an_earlier_instant() -> None:
    record = record_of(replicas=[2, 2, 2, 2], waiting=[10, 20, 10, 10])
    assert wanted(hpa_on(record)) == [4, 2, 2]
    assert wanted(hpa_on(record, delay_s=15)) == [2, 4, 2]


def test_a_scaler_keeps_its_memory_between_recorded_instants() -> None:
    record = record_of(replicas=[4] * 12, waiting=[20] + [0] * 11)
    assert set(wanted(hpa_on(record, stabilisation_s=300))) == {4}, "the first count is remembered 300 s"
    assert wanted(hpa_on(record, stabilisation_s=60))[-1] == 1


def test_instances_that_start_are_counted_and_do_not_serve() -> None:
    record = record_of(replicas=[1, 4, 4], ready=[1, 1, 4], waiting=[8, 12, 16])
    (role,) = views_of(record).view(15.0, 15.0).roles
    assert role.supply == 4 and len(role.in_state("loading")) == 3
    # Three that start count as 0: 12 over 4 instances is below the target, so nothing changes.
    assert wanted(hpa_on(record)) == [4, 4]


def test_what_each_instance_has_is_its_own_or_an_equal_share() -> None:
    rows = {"waiting": np.array([[1.0, 1.0, 1.0], [3.0, 3.0, np.nan]])}
    record = record_of(rows, replicas=[2, 2, 2], waiting=[4, 4, 5])
    views = views_of(record)
    found = [views.view(at_s, at_s).signals for at_s in (15.0, 30.0)]
    seen = [[one.waiting for one in signals.instances] for signals in found if signals is not None]
    assert seen == [[1, 3], [2.5, 2.5]]


def test_rates_and_lengths_are_of_the_window() -> None:
    record = record_of(
        replicas=[1] * 6,
        requests_per_s=[1, 1, 2, 3, 4, 5],
        prompt_tokens_per_s=[100, 100, 200, 300, 400, 500],
    )
    signals = views_of(record, window_s=30.0).view(75.0, 75.0).signals
    assert signals is not None
    assert signals.requests_per_s == pytest.approx(4.5) and signals.requests == pytest.approx(135)
    assert signals.mean_prompt_tokens == pytest.approx(100) and signals.window_ns == 30 * NS_PER_S


def test_latencies_are_the_newest_and_none_without_requests() -> None:
    record = record_of(replicas=[1] * 4, ttft_mean_ms=[np.nan, 200, np.nan, np.nan])
    views = views_of(record, window_s=20.0)
    found = [views.view(at_s, at_s).signals for at_s in (0.0, 30.0, 45.0)]
    ttft = [signals.measured.ttft for signals in found if signals is not None]
    assert [(one.count, one.mean_ns) for one in ttft] == [(0, 0), (1, 200_000_000), (0, 0)]
    assert views.missing == set()


def test_what_the_record_lacks_is_noted_when_it_is_asked() -> None:
    views = views_of(record_of(replicas=[1, 1], waiting=[1, 2]))
    view = views.view(15.0, 15.0)
    assert view.signals is not None and view.signals.instances[0].waiting == 2 and not views.missing
    assert view.signals.instances[0].kv_use is not None and view.signals.oldest_wait_s is not None
    assert view.signals.measured.tpot.p99_ns and view.backlog_tokens
    assert {"kv_use", "tpot_p99_ms", "waiting and a mean prompt length"} < views.missing
    with pytest.raises(AttributeError):
        _ = view.signals.no_such_signal  # type: ignore[attr-defined]


def test_while_something_is_not_known_there_are_no_metrics() -> None:
    record = record_of(replicas=[1, 1, 1], waiting=[9, np.nan, 9])
    assert [decision.at_s for decision in hpa_on(record).decisions] == [30]


def test_every_question_of_a_view_has_an_answer() -> None:
    """Fields and properties that scalers may read: what is added to the protocol must be added here."""
    view = views_of(record_of(replicas=[2, 2], waiting=[1, 2])).view(15.0, 15.0)
    signals = view.signals
    assert signals is not None
    (mean,) = signals.means
    answered: list[tuple[object, type]] = [
        (view, ScalingView),
        (signals, Signals),
        (signals.instances[0], InstanceSignals),
        (mean, RoleMeans),
        (signals.measured, Measured),
        (signals.measured.ttft, Latency),
    ]
    for one, kind in answered:
        properties = [name for name, value in vars(kind).items() if isinstance(value, property)]
        missing = [name for name in (*kind.__annotations__, *properties) if not hasattr(one, name)]
        assert missing == [], kind.__name__
