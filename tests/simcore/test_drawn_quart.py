"""QUART and its baselines in drawn worlds with losses: invariants after each event, replay, host memory."""

from random import Random

import pytest

from policies.quart.options import cocktail, inferline, infless, quart
from serving.elastic.stage_control import StageControl
from serving.protocols.stages import PipelineView, StageDecision, StageScaler
from serving.record.replay import replay
from serving.record.stage_checks import broken_hosts
from serving.services.pipeline.service import Pipeline
from tests.worlds.drawn_stages import check_order, drawn
from tests.worlds.stage_world import MS, controller_of, run

MAKERS = (
    lambda: quart(hold_s=0.01, key_for_s=0.05, period_s=0.002, target_s=0.001, copies_first=True),
    lambda: quart(
        hold_s=0.01,
        key_for_s=0.05,
        period_s=0.002,
        key_rule="outstanding",
        key_passes=1,
        placement=False,
        smoother="none",
    ),
    lambda: infless(keep_alive_s=0.02, period_s=0.002),
    lambda: inferline(envelope_s=0.02, settle_s=0.01, period_s=0.002),
    lambda: cocktail(history_s=0.02, keep_s=0.02, ahead_s=0.01, period_s=0.002),
)


class Watched:
    """A scaler whose views are held against what hosts may use for copies."""

    def __init__(self, inner: StageScaler, share: float) -> None:
        self._inner, self._share = inner, share
        self.memory_s = inner.memory_s  # type: ignore[attr-defined]
        self.copies = 0

    def scale(self, view: PipelineView) -> tuple[StageDecision, ...]:
        for host in view.hosts:
            assert host.used_bytes <= self._share * host.memory_bytes
            self.copies += len(host.copies)
        return self._inner.scale(view)


@pytest.mark.parametrize("seed", range(20))
def test_drawn_worlds_under_each_scaler(seed: int) -> None:
    maker, losses = MAKERS[seed % len(MAKERS)], bool(seed % 3)
    world = drawn(seed, losses)
    for case in world.cases:
        case.elastic, case.layer_bytes = True, 3_000_000
    # One copy of a stage of 6 MB fits into a host's memory below 85 %.
    memory = Random(seed).choice((9_000_000, 40_000_000))
    scaler = Watched(maker(), 0.85)
    plan = world.plan if losses else None
    setting = {"period_ns": 3 * MS, "host_bytes": memory, "copies_share": 0.85}
    found = run(*world.cases, faults=plan, scaler=scaler, **setting)
    fresh = controller_of(*world.cases, scaler=maker(), **setting)
    assert replay(found.journal(), fresh).first_difference is None
    for case in world.cases:
        check_order(case, found, losses)
    if not losses:
        assert len(found.recorder.done) == sum(len(case.arrivals_ns) for case in world.cases)
    assert isinstance(found.controller.elastic, StageControl)


def test_in_these_worlds_replicas_come_and_copies_are_kept_and_forgotten() -> None:
    acts, evictions = set[str](), 0
    for seed in range(0, 60, len(MAKERS)):
        world = drawn(seed, False)
        for case in world.cases:
            case.elastic, case.layer_bytes = True, 3_000_000
        found = run(*world.cases, scaler=MAKERS[0](), period_ns=3 * MS, host_bytes=9_000_000)
        control = found.controller.elastic
        assert isinstance(control, StageControl)
        acts |= {one.act for one in control.replicas.history}
        evictions += control.replicas.hosts.copies.evicted
    assert acts >= {"load", "ready", "drain", "released"} and evictions


def test_broken_books_of_hosts_are_named_by_number() -> None:
    world = drawn(0, False)
    for case in world.cases:
        case.elastic = True
    controller = controller_of(*world.cases, scaler=MAKERS[0]())
    control, (service, *_) = controller.elastic, controller.services.values()
    assert isinstance(control, StageControl) and isinstance(service, Pipeline)
    replicas = control.replicas

    def found() -> list[tuple[int, str]]:
        return [(number, text.split()[0]) for number, text in broken_hosts(control, service)]

    assert not found()
    replicas.hosts.taken_cores[0] += 1
    assert found() == [(8, str(replicas.hosts.taken_cores[0]))]
    replicas.hosts.taken_cores[0] -= 1
    part = service.stages[0].part
    replicas.hosts.copies.keep(0, 0, part, True)
    assert not found()
    replicas.states[0] = "loading"
    assert found() == [(3, "replica")]
    del replicas.states[0]
    assert (8, "GPUs") in found()


@pytest.mark.parametrize("wanted", [False, True])
def test_copies_above_the_share_of_the_policy_are_named_though_they_fit(wanted: bool) -> None:
    """Also those that are to come, on a host that has none yet: 9 of 10 MB, where 8.5 may be used."""
    world = drawn(0, False)
    for case in world.cases:
        case.elastic, case.layer_bytes = True, 9_000_000
    part = world.cases[0].parts[0]
    size = len(part) * 9_000_000

    def told(memory: int) -> list[str]:
        controller = controller_of(*world.cases, scaler=MAKERS[0](), host_bytes=memory, copies_share=0.85)
        control, (service, *_) = controller.elastic, controller.services.values()
        assert isinstance(control, StageControl) and isinstance(service, Pipeline)
        control.replicas.hosts.copies.keep(0, 0, part, not wanted)
        return [text for number, text in broken_hosts(control, service) if number == 8]

    assert told(10 * size // 9) == [
        f"copies on host 0 are {size} bytes, and may be {int(0.85 * (10 * size // 9))}"
    ]
    assert told(10 * size // 8) == []
