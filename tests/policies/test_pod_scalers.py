"""Scalers that read metrics, against their published rules, by hand."""

from dataclasses import replace

import pytest

from policies.scaling.chiron import Chiron
from policies.scaling.dynamo import DynamoLoad, DynamoThroughput
from policies.scaling.hpa import Hpa
from policies.scaling.keda import Keda
from policies.scaling.kpa import Apa, Kpa
from policies.scaling.token_velocity import HeteroScale, TokenScale, TokenVelocity
from policies.scaling.wva import WvaV1, WvaV2
from serving.protocols.scaling import FixedRole, ScaleDecision, Scaler
from serving.protocols.signals import Signals
from serving.vocabulary.measured import Latency, Measured
from tests.worlds.signals import ESTIMATES, arrived, change, role_of, signals_of, view_of


@pytest.mark.parametrize(
    ("serving", "loading", "waiting", "wanted"),
    [
        (4, 0, 5, 4),  # at the target
        (4, 0, 5.4, 4),  # 8 %, within the tolerance of 10 %
        (4, 0, 6, 5),  # ceil(4 x 1.2)
        (4, 0, 20, 8),  # 16, but at most 100 % or 4 more in 15 s
        (1, 0, 50, 5),  # 10, but at most 4 more
        (4, 2, 10, 8),  # of 6 with the loading ones as 0: 40 / 30, so ceil(6 x 1.33)
        (4, 4, 10, 8),  # 40 / 40: nothing, though 40 / 20 without them
        (4, 2, 2.5, 6),  # down to ceil(6 x (10 + 10) / 30) = 4, which instances that load hold for 300 s
    ],
)
def test_hpa(serving: int, loading: int, waiting: float, wanted: int) -> None:
    hpa, role = Hpa(metric="waiting", target=5.0), role_of(serving, loading)
    if waiting < 5:  # the largest recommendation of the last 300 s
        full = signals_of(15, role, waiting=5)
        assert hpa.scale(view_of(15, role, full)) == ()
    view = view_of(30, role, signals_of(30, role, waiting=waiting))
    assert role.supply + change(hpa.scale(view)) == wanted


def test_hpa_goes_down_after_the_stabilisation_window_and_the_youngest_go_first() -> None:
    hpa, role = Hpa(metric="running", target=10.0), role_of(4)
    for at_s in range(15, 15 + 315, 15):
        decisions = hpa.scale(view_of(at_s, role, signals_of(at_s, role, running=10 if at_s == 15 else 4)))
        if at_s <= 315:
            assert decisions == ()
    (decision,) = hpa.scale(view_of(330, role, signals_of(330, role, running=4)))
    assert decision.act == "drain" and decision.instances == (2, 3)  # ceil(4 x 0.4) = 2 stay


def test_hpa_decides_once_per_sync_and_not_without_metrics() -> None:
    hpa, role = Hpa(), role_of(1)
    much = signals_of(15, role, waiting=50)
    assert hpa.scale(view_of(14, role, much)) == ()  # no sync has come
    assert hpa.scale(view_of(15, role, None)) == ()
    assert hpa.scale(view_of(16, role, much)) == ()
    assert change(hpa.scale(view_of(30, role, much))) == 4


def test_hpa_on_a_latency_compares_one_value() -> None:
    hpa, role = Hpa(metric="ttft_p90_ms", target=1000.0), role_of(2)
    slow = Measured(ttft=Latency(10, 900_000_000, 1_000_000_000, 2_000_000_000, 3_000_000_000))
    assert change(hpa.scale(view_of(15, role, replace(signals_of(15, role), measured=slow)))) == 2


def test_keda_goes_to_nothing_after_its_cooldown_and_back_at_a_poll() -> None:
    keda, none = Keda(threshold=10.0), role_of(0, minimum=0)
    assert keda.scale(view_of(15, none, None)) == ()  # polls come every 30 s
    assert change(keda.scale(view_of(30, none, None))) == 1
    one = role_of(1, minimum=0)
    idle = [keda.scale(view_of(at, one, signals_of(at, one), backlog_tokens=0)) for at in range(45, 331, 15)]
    assert [change(decisions) for decisions in idle] == [0] * 19 + [-1]  # at 330 s: 300 s after 30 s


def test_keda_divides_the_total_by_the_threshold() -> None:
    role = role_of(2)
    decisions = Keda(threshold=10.0).scale(view_of(30, role, signals_of(30, role, running=12, waiting=3)))
    assert change(decisions) == 1  # 30 / 10


def test_kpa_panics_on_a_burst_and_then_does_not_go_down_for_a_stable_window() -> None:
    kpa, role = Kpa(target=10.0), role_of(2)
    for at_s in range(2, 62, 2):
        assert kpa.scale(view_of(at_s, role, signals_of(at_s, role, running=9))) == ()
    # The panic window's three scrapes: 18, 18 and 200 in all, so 79 want 8 instances, 4 times those there.
    assert change(kpa.scale(view_of(62, role, signals_of(62, role, running=100)))) == 6
    grown = role_of(8)
    for at_s in range(64, 124, 2):
        assert change(kpa.scale(view_of(at_s, grown, signals_of(at_s, grown, running=1)))) >= 0
    later = [
        change(kpa.scale(view_of(at, grown, signals_of(at, grown, running=1)))) for at in range(124, 200, 2)
    ]
    assert min(later) == -4  # at most by half at once


def test_apa_stays_in_its_band_and_doubles_at_most() -> None:
    role = role_of(4)
    changes = [
        change(Apa(target=10.0).scale(view_of(15, role, signals_of(15, role, running=running))))
        for running in (11, 9, 8, 12, 100, 7, 1)
    ]
    assert changes == [0, 0, 0, 1, 4, -1, -2]


def test_token_velocity_by_its_formula() -> None:
    """Prefill: tokens in flight over velocity x threshold. KV use of 3 instances at 0.9 over 0.8."""

    def wanted(role: FixedRole, tokens: int, velocity: float, at_s: float = 15.0, **gauges: float) -> int:
        signals = signals_of(at_s, role, in_flight_tokens=tokens, **gauges)
        return change(TokenVelocity(prefill_tokens_per_s=velocity).scale(view_of(at_s, role, signals)))

    role, prefill = role_of(3), role_of(3, role="prefill")
    assert wanted(role, 2000, 1000.0, kv_use=0.9) == 1  # 6,000 / 1,500 = 4 and ceil(2.7 / 0.8) = 4
    assert wanted(role, 2000, 2000.0, kv_use=0.9) == 1  # 2 by prefill, 4 by memory
    assert wanted(prefill, 2000, 800.0, kv_use=0.9) == 1  # 5, but one pod in 180 s
    assert wanted(prefill, 2000, 1300.0) == 0  # 3.08 is within 10 % of 3
    assert wanted(prefill, 2000, 1200.0) == 1  # 3.33
    assert wanted(role_of(3, role="decode"), 9000, 100.0, kv_use=0.5) == 0  # 1.9 wanted: 3 are held for 300 s
    queued = replace(signals_of(15, prefill), queued_tokens=5000)
    assert change(TokenVelocity(prefill_tokens_per_s=1000.0).scale(view_of(15, prefill, queued))) == 1


def test_token_velocity_adds_a_pod_every_180_s_and_takes_one_every_300_s() -> None:
    """The behaviour of the source's ScaledObject, on tokens that would want ten and then one."""
    scaler = TokenVelocity(prefill_tokens_per_s=1000.0, threshold_s=1.0)
    count, changes = 1, list[tuple[int, int]]()
    for at_s in range(15, 2000, 15):
        role = role_of(count, role="prefill")
        signals = replace(signals_of(at_s, role), queued_tokens=10_000 if at_s <= 500 else 900)
        by = change(scaler.scale(view_of(at_s, role, signals)))
        if by:
            changes.append((at_s, by))
        count += by
    assert changes == [(15, 1), (195, 1), (375, 1), (810, -1), (1110, -1), (1410, -1)]


def test_wva_v1_adds_one_at_a_time_and_waits_for_it() -> None:
    role = role_of(2)
    assert change(WvaV1().scale(view_of(30, role, signals_of(30, role, kv_use=0.75)))) == 1
    assert change(WvaV1().scale(view_of(30, role, signals_of(30, role, waiting=3)))) == 1
    waits = role_of(2, loading=1)
    assert change(WvaV1().scale(view_of(30, waits, signals_of(30, waits, kv_use=0.75)))) == 0
    assert change(WvaV1().scale(view_of(30, role, signals_of(30, role, kv_use=0.5)))) == 0  # 1.0 on the other
    assert change(WvaV1().scale(view_of(30, role, signals_of(30, role, kv_use=0.3)))) == -1


def test_wva_v2_by_memory() -> None:
    """3 instances at 0.8 hold the demand of 3: required = 3 / 0.85 - 3, so one more."""
    role = role_of(3)
    assert change(WvaV2().scale(view_of(30, role, signals_of(30, role, kv_use=0.8)))) == 1
    assert change(WvaV2().scale(view_of(30, role, signals_of(30, role, kv_use=0.2)))) == -1  # 3 - 0.75 / 0.7


def test_dynamo_by_throughput() -> None:
    """10 requests/s of 400 tokens are 4 prefill instances; nothing before the first request has finished."""
    role = role_of(1, role="prefill")
    signals = arrived(signals_of(180, role, window_s=180.0), 1800, 1800 * 400)
    assert DynamoThroughput(estimates=ESTIMATES).scale(view_of(180, role, signals)) == ()
    done = replace(signals, measured=Measured(finished=100, prompt_tokens=40_000, output_tokens=10_000))
    assert change(DynamoThroughput(estimates=ESTIMATES).scale(view_of(180, role, done))) == 3
    assert change(DynamoThroughput(estimates=ESTIMATES, most_per_step=2).scale(view_of(180, role, done))) == 2


def test_dynamo_by_load_needs_five_samples_and_waits_for_loads() -> None:
    planner, role = DynamoLoad(ttft_ms=500.0), role_of(2, role="prefill")
    slow = Measured(ttft=Latency(10, 900_000_000, 0, 0, 0))
    for look, at_s in enumerate(range(5, 35, 5), start=1):
        signals = replace(signals_of(at_s, role, prompt_tokens=4000), measured=slow)
        assert change(planner.scale(view_of(at_s, role, signals))) == (1 if look >= 5 else 0)
    loading = role_of(2, loading=1, role="prefill")
    signals = replace(signals_of(40, loading, prompt_tokens=4000), measured=slow)
    assert planner.scale(view_of(40, loading, signals)) == ()


def test_tokenscale_divides_arriving_tokens_by_velocities() -> None:
    """50 requests/s of 100 tokens are 5 prefill instances at 1,000 tokens/s."""
    role = role_of(1, role="prefill")
    signals = arrived(signals_of(10, role, window_s=10.0), 500, 50_000)
    assert change(TokenScale(estimates=ESTIMATES).scale(view_of(10, role, signals))) == 4


def test_heteroscale_keeps_the_ratio_and_adds_one_while_tokens_are_slow() -> None:
    role = role_of(2)
    quick = replace(signals_of(15, role, running=40), measured=Measured(tpot=Latency(9, 40_000_000, 0, 0, 0)))
    assert change(HeteroScale(tokens_per_s=1000.0).scale(view_of(15, role, quick))) == 0  # 80 / 0.04 = 2,000
    slow = replace(quick, measured=Measured(tpot=Latency(9, 60_000_000, 0, 0, 0)))
    assert change(HeteroScale(tokens_per_s=1000.0).scale(view_of(15, role, slow))) == 1


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Hpa(metric="cpu"), "metric is cpu"),
        (lambda: Hpa(target=0.0), "target is 0"),
        (lambda: Hpa(roles="both"), "roles is both"),
        (lambda: Keda(metric="ttft_p90_ms"), "a latency"),
        (lambda: Keda(polling_s=20.0), "multiple of sync_s"),
        (lambda: Kpa(panic_s=90.0), "panic_s must be at most"),
        (lambda: WvaV2(down=0.9), "down must be"),
        (lambda: DynamoThroughput(estimates=ESTIMATES, forecast="prophet"), "forecast must be"),
        (lambda: TokenVelocity(kv_use=0.0), "kv_use above 0"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(make: object, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    "scaler",
    [
        Hpa(), Kpa(), Apa(), TokenVelocity(), TokenScale(estimates=ESTIMATES), HeteroScale(), WvaV1(),
        WvaV2(), DynamoThroughput(estimates=ESTIMATES), DynamoLoad(), Chiron(),
    ],
    ids=lambda scaler: type(scaler).__name__,
)  # fmt: skip
def test_a_model_whose_last_instance_was_lost_gets_one_again(scaler: Scaler) -> None:
    """Their rules multiply the number of instances, and nothing times anything is nothing."""
    none, at_s = role_of(0), 360  # a multiple of every period
    (decision,) = scaler.scale(view_of(at_s, none, signals_of(at_s, none)))
    assert (decision.act, decision.count) == ("load", 1)
    to_zero = role_of(0, minimum=0)
    assert scaler.scale(view_of(720, to_zero, signals_of(720, to_zero), backlog_tokens=0)) == ()
    (decision,) = scaler.scale(view_of(1080, to_zero, signals_of(1080, to_zero)))
    assert (decision.act, decision.count) == ("load", 1)


def itl(view_s: float, role: FixedRole, ms: float, running: int = 0) -> Signals:
    """Signals in which finished requests took so long a token."""
    measured = Measured(tpot=Latency(10, round(ms * 1e6), 0, 0, 0))
    return replace(signals_of(view_s, role, running=running), measured=measured)


def limits(decisions: tuple[ScaleDecision, ...]) -> list[tuple[int, tuple[int, ...]]]:
    """(limit, instances) of the decisions about batches."""
    return [(one.count, one.instances) for one in decisions if one.act == "limit_batch"]


def test_chiron_multiplies_the_batch_by_objective_over_observed() -> None:
    chiron, role = Chiron(itl_ms=50.0, batch=64, most_batch=150), role_of(2)
    assert limits(chiron.scale(view_of(5, role, signals_of(5, role)))) == [(64, (0, 1))]  # nothing is known
    assert limits(chiron.scale(view_of(10, role, itl(10, role, 40.0)))) == [(80, (0, 1))]
    assert limits(chiron.scale(view_of(14, role, itl(14, role, 80.0)))) == []  # not due
    assert limits(chiron.scale(view_of(15, role, itl(15, role, 500.0)))) == [(40, (0, 1))]  # at most halved
    assert limits(chiron.scale(view_of(20, role, itl(20, role, 50.0)))) == []  # at the objective
    assert limits(chiron.scale(view_of(25, role, itl(25, role, 5.0)))) == [(80, (0, 1))]  # at most doubled
    assert limits(chiron.scale(view_of(30, role, itl(30, role, 5.0)))) == [(150, (0, 1))]
    more = role_of(3)
    assert limits(chiron.scale(view_of(35, more, itl(35, more, 50.0)))) == [(150, (2,))]  # the new one


def test_chiron_keeps_instances_theta_full() -> None:
    role = role_of(2)
    chiron = Chiron(itl_ms=50.0, batch=10, theta=0.5, hold_s=30)
    busy = replace(itl(15, role, 50.0, running=10), queued=4)
    assert change(chiron.scale(view_of(15, role, busy))[1:]) == 3  # 24 requests in batches of 10, half full
    grown = role_of(5)
    assert chiron.scale(view_of(30, grown, itl(30, grown, 50.0, running=2)))[1:] == ()  # held
    assert change(chiron.scale(view_of(60, grown, itl(60, grown, 50.0, running=2)))) == -3
    with pytest.raises(ValueError, match="multiple of local_s"):
        Chiron(local_s=4)
