"""Which new instances are live: the policy case by case, what a system shows it and what it does then."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.live.live_scaling import LiveScaling, live_scaling
from policies.live.zigzag import BestEffort, Ilp, IlpFree, StopTheWorld
from serving.live.loads import live_targets
from serving.protocols.live import LiveChoice, LivePolicy, LiveTarget
from serving.protocols.planning import Edge, Shard
from serving.vocabulary.actions import Load, Run
from serving.vocabulary.events import Loaded, Woke
from tests.worlds.elastic_world import LAYERS, MS, SIZE_BYTES, Setting, Told
from tests.worlds.scripted_scaling import scripted

SLO_MS = 500
# One instance that loads for 400 ms, and a head of the queue that has waited for 200 ms: too late.
LATE = LiveChoice((LiveTarget(7, 400 * MS, True),), 200 * MS, 1000, 1, 1)


def policy(**more: Any) -> LiveScaling:
    return LiveScaling(more.pop("scheduler", IlpFree()), SLO_MS, **more)


def shown(**changes: Any) -> LiveChoice:
    return replace(LATE, **changes)


def loads(*load_ms: int | None, tail: bool = True) -> tuple[LiveTarget, ...]:
    return tuple(
        LiveTarget(number, None if ms is None else ms * MS, tail) for number, ms in enumerate(load_ms)
    )


def test_one_whose_load_is_too_long_for_who_waits_is_live() -> None:
    assert policy().select(LATE) == (7,)


def test_a_load_that_is_over_in_time_is_not_live() -> None:
    assert policy().select(shown(waited_ns=100 * MS)) == ()
    assert policy().select(shown(waited_ns=100 * MS + 1)) == (7,)


def test_nobody_is_live_where_nothing_is_left_to_compute() -> None:
    assert policy().select(shown(backlog_tokens=0)) == ()
    assert policy().select(shown(backlog_tokens=1)) == (7,)


def test_nobody_is_live_without_one_that_has_all_layers() -> None:
    assert policy().select(shown(partners=0, helpers=0)) == ()
    assert policy().select(shown(partners=0, helpers=1)) == (7,)


def test_one_that_feeds_another_is_live_only_if_asked_for() -> None:
    choice = shown(targets=loads(400, tail=False))
    assert policy().select(choice) == ()
    assert policy(tails_only=False).select(choice) == (0,)


def test_a_load_that_nobody_can_estimate_counts_as_the_longest() -> None:
    assert policy().select(shown(targets=loads(400, None, 900))) == (1,)
    assert policy().select(shown(targets=loads(400, None, 900), partners=3)) == (1, 2, 0)


def test_ties_go_in_the_order_of_the_plan() -> None:
    targets = tuple(LiveTarget(number, 400 * MS, True) for number in (5, 3, 9))
    assert policy().select(shown(targets=targets, partners=2)) == (5, 3)


def test_decode_instances_help_with_one_as_if_they_were_one_partner() -> None:
    choice = shown(targets=loads(400, 400, 400), partners=0, helpers=3)
    assert policy().select(choice) == (0,)
    assert policy(targets_per_partner=2).select(choice) == (0, 1)


def test_stop_is_never_live() -> None:
    assert policy(scheduler=StopTheWorld()).select(LATE) == ()


@given(
    targets=st.lists(st.tuples(st.none() | st.integers(0, 900), st.booleans()), max_size=6),
    waited_ms=st.integers(0, 900),
    backlog=st.integers(0, 3),
    partners=st.integers(0, 3),
    helpers=st.integers(0, 3),
    per_partner=st.integers(1, 3),
    tails_only=st.booleans(),
)
def test_who_is_live_is_late_and_no_more_than_partners_have_room_for(
    targets: list[tuple[int | None, bool]], waited_ms: int, backlog: int, partners: int, helpers: int,
    per_partner: int, tails_only: bool,
) -> None:  # fmt: skip
    made = tuple(
        LiveTarget(number, None if ms is None else ms * MS, tail) for number, (ms, tail) in enumerate(targets)
    )
    choice = LiveChoice(made, waited_ms * MS, backlog, partners, helpers)
    chosen = policy(tails_only=tails_only, targets_per_partner=per_partner).select(choice)
    late = {
        one.replica: one.load_ns
        for one in made
        if (one.tail or not tails_only)
        and (one.load_ns is None or choice.waited_ns + one.load_ns > SLO_MS * MS)
    }
    room = (partners or min(helpers, 1)) * per_partner if backlog else 0
    assert len(set(chosen)) == len(chosen) == min(room, len(late))
    others = [ns for number, ns in late.items() if number not in chosen]
    assert all(late[number] is None or None not in others for number in chosen)
    assert all(
        late[number] is None or late[number] >= ns for number in chosen for ns in others if ns is not None
    )  # type: ignore[operator]


# What the plan of loads says of each.


def edge(source: int, *targets: int, rate: float = 1e9, share: float = 1.0) -> Edge:
    shards = tuple(Shard(source, target, share, rate) for target in targets)
    stops = tuple([("replica", target) for target in targets])
    return Edge((("replica", source),), stops, rate, shards, "")  # type: ignore[arg-type]


def test_a_chain_is_as_slow_as_its_slowest_edge_and_only_its_end_is_a_tail() -> None:
    chain = [edge(0, 1, rate=1e9), edge(1, 2, rate=5e8), edge(2, 3, rate=1e9)]
    assert live_targets(chain, 10**9) == [
        LiveTarget(1, 10**9, False), LiveTarget(2, 2 * 10**9, False), LiveTarget(3, 2 * 10**9, True),
    ]  # fmt: skip


def test_what_comes_from_a_store_has_no_estimate_neither_has_what_follows_it() -> None:
    store = Edge((("ssd", 0),), (("replica", 1),), 0, (), "")
    assert live_targets([store, edge(1, 2)], 10**9) == [LiveTarget(1, None, False), LiveTarget(2, None, True)]


# In a system.


def started(requests: int = 6, prefill: int = 1, rate: float = 20.0, **more: Any) -> list[Load]:
    """The loads of the first look of the monitor, 100 ms after requests came; SIZE_BYTES in one second."""
    told = Told(
        Setting(
            hosts=8, gpus_per_host=1, start={"prefill": prefill, "decode": 1}, provision="multicast",
            bounds={"prefill": (prefill, prefill + 1), "decode": (1, 1)}, prefill_tokens_per_s=rate, **more,
        )
    )  # fmt: skip
    for number in range(requests):
        told.arrive(number, prompt=16)
    return [one for one in told.controller.handle(100 * MS, Woke()) if isinstance(one, Load)]


def within_slo(slo_ms: float) -> Any:
    def made() -> LivePolicy:
        return LiveScaling(IlpFree(), slo_ms)

    return made


def test_the_wait_of_the_head_and_the_load_at_the_planned_rate_decide() -> None:
    """1000 bytes at 1000 bytes/s; the head of the queue came with the first requests, 100 ms ago."""
    assert SIZE_BYTES == 1000
    for slo_ms, live in ((0, True), (1099, True), (1101, False), (1e6, False)):
        (load,) = started(live=within_slo(slo_ms))
        assert (load.every_layer, load.reason.endswith("; live")) == (live, live), slo_ms


def test_with_all_layers_and_no_head_an_instance_runs_no_last_layer() -> None:
    told = Told(
        Setting(
            hosts=8, gpus_per_host=1, provision="multicast", bounds={"prefill": (1, 2), "decode": (1, 1)},
            prefill_tokens_per_s=20.0, live=within_slo(0),
        )
    )  # fmt: skip
    for number in range(6):
        told.arrive(number, prompt=16)
    (load,) = [one for one in told.woke(100 * MS) if isinstance(one, Load)]
    new = load.targets[0][1]
    actions, layers = told.fact(Loaded(load.load, 0, LAYERS, False)), list[tuple[int, int] | None]()
    for _ in range(4):
        layers += [one.layers for one in actions if isinstance(one, Run) and one.replica == new]
        actions = told.ran(new)
    assert layers == [(0, 1), (1, 2), (2, 3), (0, 1)]  # of one batch, then of the next


def test_one_that_is_to_decode_is_never_live() -> None:
    answers = ((("load", "decode", 1, ()), ("load", "prefill", 1, ())),)
    assert scripted(*answers) == [[("decode", False), ("prefill", True)]]


def test_a_second_scale_up_finds_no_partner_that_is_free() -> None:
    one_more = (("load", "prefill", 1, ()),)
    assert scripted(one_more, one_more) == [[("prefill", True)], [("prefill", False)]]
    assert scripted(one_more, one_more, prefill=2) == [[("prefill", True)], [("prefill", True)]]


# Values of a configuration.


@pytest.mark.parametrize(
    ("scheduler", "kind", "ahead"),
    [("ilp_free", IlpFree, 0), ("best_effort", BestEffort, 1), ("ilp", Ilp, 12), ("stop", StopTheWorld, 0)],
)
def test_every_scheduler_has_a_name(scheduler: str, kind: type, ahead: int) -> None:
    made = live_scaling(450, scheduler=scheduler)
    assert type(made.scheduler) is kind and made.scheduler.ahead == ahead and made.embeds


def test_values_reach_the_policy() -> None:
    made = live_scaling(
        450, scheduler="ilp", slo_ms=None, embedding="source", solve_ms=7, batches_ahead=3, tails_only=False
    )
    assert (made.scheduler.solve_ns, made.scheduler.ahead, made.embeds) == (7 * MS, 3, False)
    assert (
        made.select(shown(targets=loads(400, tail=False), waited_ns=50 * MS)) == ()
    )  # 450 ms in all: in time
    assert made.select(shown(targets=loads(401, tail=False), waited_ns=50 * MS)) == (0,)
    assert live_scaling(450, slo_ms=2000).select(LATE) == ()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"scheduler": "zigzag"}, "scheduler is zigzag, and must be one of ilp_free, best_effort, ilp, stop"),
        ({"slo_ms": -1}, "slo_ms is -1, and must be a time"),
        ({"slo_ms": float("inf")}, "slo_ms is inf"),
        ({"targets_per_partner": 0}, "targets_per_partner is 0"),
        ({"embedding": "both"}, "embedding is both, and must be target or source"),
        ({"scheduler": "ilp", "solve_ms": -1}, "solve_ms of 0 or more"),
        ({"scheduler": "ilp", "batches_ahead": 1}, "batches_ahead of 2 or more"),
        ({"scheduler": "ilp", "formulation": "eq1"}, "the formulation 'eq1' is unknown"),
        ({"scheduler": "ilp", "deterministic_limit": 0}, "a deterministic limit above 0"),
    ],
)
def test_what_cannot_be_is_refused_with_the_key(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        live_scaling(450, **values)
