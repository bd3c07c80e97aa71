"""BlitzScale's load monitor: every rule from worked examples, its boundaries, and laws over drawn loads."""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.scaling.load_monitor import Band, LoadMonitor, SurplusArbiter, load_monitor
from policies.scaling.rules import (
    Bounds,
    Need,
    ScalingRules,
    link_need,
    memory_need,
    need_of,
    prefill_need,
    scaling_rules,
    within,
)
from serving.protocols.scale_answers import taken_for
from serving.protocols.scaling import (
    FixedRole,
    InstanceState,
    InstanceView,
    Offer,
    RoleView,
    ScaleDecision,
    ScalingView,
)
from serving.vocabulary.replica import Role
from tests.worlds.refusals import refuses

MS = 1_000_000
TIMEOUT_NS = 333 * MS
P, D, LINK = Bounds(0.5, 0.7), Bounds(0.75, 0.95), Bounds(0.4, 0.8)
QUIET = ScalingRules(prescale_from=0)  # no pre-scaling: one rule at a time


def some(first: int, count: int, state: InstanceState = "serving") -> list[InstanceView]:
    return [InstanceView(id, state) for id in range(first, first + count)]


def a_role(
    role: Role, serving: int = 0, loading: int = 0, draining: int = 0, minimum: int = 0, maximum: int = 14
) -> FixedRole:
    """Ids from 0 (prefill) or 100: the serving ones first, then the loading ones, then the draining ones."""
    first = 100 if role == "decode" else 0
    views = some(first, serving)
    views += some(first + serving, loading, "loading")
    views += some(first + serving + loading, draining, "draining")
    return FixedRole(role, tuple(views), minimum, maximum)


def a_view(
    *roles: RoleView,
    backlog: int = 0,
    kv: int = 0,
    migrating: int = 0,
    now_ns: int = 0,
    spare: int = 100,
    parked: tuple[int, ...] = (),
) -> ScalingView:
    """Round rates: 10000 prompt tokens/s, 100000 tokens of KV memory, 100000 KV tokens/s."""
    return ScalingView(
        now_ns, "m", roles, backlog, kv, migrating, 10_000, 100_000, 100_000.0, spare, parked
    )  # fmt: skip


def done(view: ScalingView, rules: ScalingRules = QUIET) -> list[tuple[str, str, int, tuple[int, ...]]]:
    """The decisions of a monitor without a past, without their reasons."""
    return acts(LoadMonitor(rules).scale(view))


def acts(decisions: tuple[ScaleDecision, ...]) -> list[tuple[str, str, int, tuple[int, ...]]]:
    return [(one.act, one.role, one.count, one.instances) for one in decisions]


@pytest.mark.parametrize(
    ("backlog", "least", "most"),
    [
        (0, 0, 0),
        (1, 1, 1),
        (6_500, 1, 1),  # the lower bound: 0.5 s of one instance
        (6_501, 1, 2),
        (9_100, 1, 2),  # the upper bound: 0.7 s
        (9_101, 2, 2),
        (45_500, 5, 7),  # 3.5 s of one instance: both bounds are met exactly
        (45_501, 6, 8),
        (130_000, 15, 20),
    ],
)
def test_prefill_needs_its_backlog_worked_off_between_the_bounds(backlog: int, least: int, most: int) -> None:
    need = prefill_need(backlog, 13_000, P)
    assert (need.least, need.most) == (least, most)


@pytest.mark.parametrize(
    ("kv", "least", "most"),
    [(0, 0, 0), (96_000, 1, 1), (96_001, 1, 2), (121_600, 1, 2), (121_601, 2, 2), (2 * 121_600 + 1, 3, 3)],
)
def test_decode_needs_its_memory_filled_between_the_bounds(kv: int, least: int, most: int) -> None:
    need = memory_need(kv, 128_000, D)
    assert (need.least, need.most) == (least, most)


@pytest.mark.parametrize(
    ("rule", "decode", "least", "most"),
    [
        ("linear", 0, 6, 12),  # 4.8 s of one link: both bounds are met exactly
        ("linear", 4, 6, 12),
        ("shipped", 0, 6, 12),  # divides by at least one
        ("shipped", 1, 6, 12),
        ("shipped", 2, 3, 6),
        ("shipped", 6, 1, 2),
        ("shipped", 12, 1, 1),
    ],
)
def test_the_link_rule_as_shipped_asks_for_less_the_more_there_are(
    rule: str, decode: int, least: int, most: int
) -> None:
    need = link_need(460_800, 96_000.0, LINK, rule, decode)  # type: ignore[arg-type]
    assert (need.least, need.most) == (least, most)


def test_a_bound_is_the_decimal_that_was_written() -> None:
    """In binary 0.7 is a little less than 7/10, and a load at the bound would now and then be above it."""
    for instances in range(1, 200):
        assert prefill_need(7_000 * instances, 10_000, P).least == instances
        assert memory_need(95_000 * instances, 100_000, D).least == instances
        assert link_need(80_000 * instances, 100_000, LINK, "linear", 1).least == instances


def test_a_role_needs_the_largest_of_its_rules() -> None:
    view = a_view(backlog=21_000, kv=200_000, migrating=120_000)

    def need(role: Role, serving: int) -> Need:
        return need_of(view, a_role(role, serving), replace(QUIET, link_rule="linear"))

    assert (need("prefill", 1).least, need("prefill", 1).most) == (3, 5)
    assert (need("decode", 1).least, need("decode", 1).most) == (3, 3), "memory wants 3..3, the link 2..3"
    assert (need("both", 1).least, need("both", 1).most) == (3, 5), (
        "no link between the roles of one instance"
    )
    assert need("decode", 1).why == "200000 KV tokens, 120000 KV tokens to move"


def test_more_are_started_up_to_the_middle_between_the_needs() -> None:
    reason = "21000 prompt tokens want 3 to 5 prefill instances, 2 in supply"
    (decision,) = LoadMonitor(QUIET).scale(a_view(a_role("prefill", 2), backlog=21_000))
    assert decision == ScaleDecision(
        act="load", model="m", role="prefill", count=2, instances=(), reason=reason
    )


def test_the_middle_is_rounded_up() -> None:
    """14001 tokens want 3 to 3, 27999 want 4 to 6, 28001 want 5 to 6."""
    for backlog, target in ((14_001, 3), (27_999, 5), (28_001, 6)):
        assert done(a_view(a_role("prefill", 1), backlog=backlog)) == [("load", "prefill", target - 1, ())]


def test_a_need_equal_to_the_supply_changes_nothing() -> None:
    for supply in (3, 4, 5):  # 21000 tokens want 3 to 5
        monitor = LoadMonitor(QUIET)
        for now_ns in (0, 10**12):
            view = a_view(a_role("prefill", supply), backlog=21_000, now_ns=now_ns)
            assert monitor.scale(view) == ()


def test_what_loads_is_supply_and_what_drains_is_not() -> None:
    assert done(a_view(a_role("prefill", 1, loading=2), backlog=21_000)) == []
    rules = replace(QUIET, ways=())
    assert done(a_view(a_role("prefill", 1, draining=2), backlog=21_000), rules) == [
        ("load", "prefill", 3, ())
    ]


def test_minimum_and_maximum_hold() -> None:
    assert done(a_view(a_role("prefill", 1, minimum=2))) == [("load", "prefill", 1, ())]
    assert done(a_view(a_role("prefill", 1, maximum=3), backlog=10**6)) == [("load", "prefill", 2, ())]
    assert done(a_view(a_role("prefill", 3, maximum=3), backlog=10**6)) == []
    refuses(AssertionError, "minimum <= maximum", a_role, "prefill", minimum=3, maximum=2)


def test_nothing_is_wanted_of_nothing() -> None:
    monitor = LoadMonitor(ScalingRules())
    for now_ns in (0, 10**12):
        assert monitor.scale(a_view(a_role("prefill"), a_role("decode"), now_ns=now_ns)) == ()
        assert monitor.scale(a_view(now_ns=now_ns)) == ()


def test_a_first_request_starts_one_instance_of_each_role() -> None:
    roles = a_role("prefill"), a_role("decode")
    expected = [("load", "prefill", 1, ()), ("load", "decode", 1, ())]
    assert done(a_view(*roles, backlog=1)) == expected
    assert done(a_view(*roles, backlog=1), ScalingRules()) == expected, "pre-scaling adds none on top"
    assert done(a_view(a_role("both"), backlog=1)) == [("load", "both", 1, ())]


def test_the_last_instance_stays_while_there_is_any_work() -> None:
    roles = a_role("prefill", 1), a_role("decode", 1)
    for work in ({"backlog": 1}, {"kv": 1}, {"migrating": 1}):
        monitor = LoadMonitor(QUIET)
        for now_ns in (0, 10**12):
            assert monitor.scale(a_view(*roles, now_ns=now_ns, **work)) == ()  # type: ignore[arg-type]


def test_one_goes_when_fewer_have_done_for_the_time_out() -> None:
    monitor = LoadMonitor(QUIET)
    reason = "0 prompt tokens want 0 to 0 prefill instances, 3 in supply"

    def at(now_ns: int) -> tuple[ScaleDecision, ...]:
        return monitor.scale(a_view(a_role("prefill", 3), now_ns=5 + now_ns))

    assert at(0) == () and at(TIMEOUT_NS - 1) == ()
    assert at(TIMEOUT_NS) == (
        ScaleDecision(act="drain", model="m", role="prefill", count=1, instances=(0,), reason=reason),
    )
    assert at(2 * TIMEOUT_NS - 1) == (), "the next waits as long again"
    assert acts(at(2 * TIMEOUT_NS)) == [("drain", "prefill", 1, (0,))]


def test_the_time_out_begins_anew_when_the_bound_is_reached() -> None:
    monitor = LoadMonitor(QUIET)
    role = a_role("prefill", 3)
    assert monitor.scale(a_view(role, now_ns=0)) == ()
    assert monitor.scale(a_view(role, backlog=10_001, now_ns=300 * MS)) == (), "3 instances, at the bound"
    assert monitor.scale(a_view(role, backlog=10_000, now_ns=400 * MS)) == ()
    assert monitor.scale(a_view(role, now_ns=400 * MS + TIMEOUT_NS - 1)) == ()
    assert acts(monitor.scale(a_view(role, now_ns=400 * MS + TIMEOUT_NS))) == [("drain", "prefill", 1, (0,))]


def test_models_and_roles_wait_apart() -> None:
    monitor = LoadMonitor(QUIET, {"slow": replace(QUIET, down_after_ns=1500 * MS)})
    p, d = a_role("prefill", 2), a_role("decode", 2)
    assert monitor.scale(replace(a_view(p), model="slow")) == () == monitor.scale(a_view(p))
    assert monitor.scale(a_view(d, now_ns=100 * MS)) == ()
    late = a_view(p, d, now_ns=TIMEOUT_NS)
    assert acts(monitor.scale(late)) == [("drain", "prefill", 1, (0,))]
    assert monitor.scale(replace(a_view(p, now_ns=1499 * MS), model="slow")) == ()
    slow = monitor.scale(replace(a_view(p, now_ns=1500 * MS), model="slow"))
    assert [(one.model, one.act) for one in slow] == [("slow", "drain")]


def test_without_a_time_out_one_goes_at_once_and_never_below_the_minimum() -> None:
    rules = replace(QUIET, down_after_ns=0)
    assert done(a_view(a_role("prefill", 2, minimum=1)), rules) == [("drain", "prefill", 1, (0,))]
    assert done(a_view(a_role("prefill", 1, minimum=1)), rules) == []
    assert done(a_view(a_role("prefill", 1, minimum=0)), rules) == [("drain", "prefill", 1, (0,))]
    assert done(a_view(a_role("prefill", 4, maximum=3), backlog=10**6), rules) == [
        ("drain", "prefill", 1, (0,))
    ]


def test_the_least_busy_goes_then_the_one_idle_longest_then_the_first() -> None:
    rules = replace(QUIET, down_after_ns=0)

    def drained(*instances: InstanceView) -> list[tuple[int, ...]]:
        return [ids for *_, ids in done(a_view(FixedRole("prefill", instances, 0, 9)), rules)]

    busy, fresh, old = (
        InstanceView(1, "serving", 3),
        *(InstanceView(i, "serving", 0, 90 // i) for i in (2, 3)),
    )
    assert drained(busy, fresh, old) == [(3,)]
    assert drained(busy, InstanceView(4, "serving", 2)) == [(4,)]
    assert drained(InstanceView(6, "serving"), InstanceView(5, "serving")) == [(5,)]


def test_the_only_one_that_serves_stays_while_others_load() -> None:
    rules = replace(QUIET, down_after_ns=0)
    assert done(a_view(a_role("prefill", 1, loading=1)), rules) == []
    assert done(a_view(a_role("prefill", 0, loading=2)), rules) == []
    assert done(a_view(a_role("prefill", 2, loading=1)), rules) == [("drain", "prefill", 1, (0,))]


def test_supply_comes_from_draining_then_parked_then_loads() -> None:
    role = a_role("prefill", 1, draining=1)  # 28000 tokens want 4 to 6: 5, so 4 more
    view = a_view(role, backlog=28_000, parked=(51, 50))
    cancel, revive = ("cancel_drain", "prefill", 1, (1,)), ("revive", "prefill", 2, (50, 51))
    assert done(view) == [cancel, revive, ("load", "prefill", 1, ())]
    assert done(view, replace(QUIET, ways=("revive",))) == [revive, ("load", "prefill", 2, ())]
    assert done(view, replace(QUIET, ways=("cancel_drain",))) == [cancel, ("load", "prefill", 3, ())]
    assert done(view, replace(QUIET, ways=())) == [("load", "prefill", 4, ())]


def test_no_more_is_taken_than_is_missing() -> None:
    view = a_view(a_role("prefill", 1, draining=5), backlog=14_000, parked=(50, 51))  # 2 to 3: 3
    assert done(view) == [("cancel_drain", "prefill", 2, (1, 2))]
    view = a_view(a_role("prefill", 1, draining=1), backlog=14_000, parked=(50, 51))
    assert done(view) == [("cancel_drain", "prefill", 1, (1,)), ("revive", "prefill", 1, (50,))]


def test_prefill_is_served_first_when_gpus_are_few() -> None:
    roles = a_role("prefill", 1), a_role("decode", 1)
    view = a_view(*roles, backlog=21_000, kv=300_000, spare=4, parked=(50,))  # 3 to 5: 4; 4 to 4
    assert done(view) == [
        ("revive", "prefill", 1, (50,)),
        ("load", "prefill", 2, ()),
        ("load", "decode", 2, ()),
        ("shortage", "decode", 1, ()),
    ]
    assert done(replace(view, spare=0)) == [
        ("revive", "prefill", 1, (50,)),
        ("shortage", "prefill", 2, ()),
        ("shortage", "decode", 3, ()),
    ]


def test_decode_grows_by_prefill_instances_that_are_replaced() -> None:
    """21000 tokens keep all 4 prefill instances; 190001 KV tokens want a third decode instance."""
    view = a_view(a_role("prefill", 4), a_role("decode", 2), backlog=21_000, kv=190_001)
    first, second = LoadMonitor(QUIET).scale(view)
    assert acts((first, second)) == [("mutate", "decode", 1, (0,)), ("load", "prefill", 1, ())]
    assert second.reason.startswith("replaces mutated instances; 21000 prompt tokens")
    assert done(view, replace(QUIET, ways=())) == [("load", "decode", 1, ())]
    assert done(replace(view, spare=0)) == [("shortage", "decode", 1, ())], "no GPUs for the replacement"


def test_no_more_turn_to_decoding_than_free_gpus_replace_after_prefill_has_grown() -> None:
    view = a_view(a_role("prefill", 4), a_role("decode", 2), backlog=28_001, kv=300_000, spare=3)  # 5 to 6, 4
    mutated, loaded = ("mutate", "decode", 1, (0,)), ("load", "prefill", 3, ())
    assert done(view) == [mutated, loaded, ("shortage", "decode", 1, ())]


def test_prefill_instances_that_are_not_needed_are_not_replaced() -> None:
    view = a_view(a_role("prefill", 4), a_role("decode", 2), backlog=15_000, kv=190_001, spare=0)
    assert done(view) == [("mutate", "decode", 1, (0,))], "15000 tokens keep 3 prefill instances busy"
    least = a_view(a_role("prefill", 4, minimum=4), a_role("decode", 2), backlog=15_000, kv=190_001, spare=0)
    assert done(least) == [("shortage", "decode", 1, ())]
    at_once = replace(QUIET, down_after_ns=0)
    assert done(view, at_once) == [("mutate", "decode", 1, (0,))], "it is the one that would have gone"


def test_one_prefill_instance_always_stays_and_decode_loads_the_rest() -> None:
    view = a_view(a_role("prefill", 2), a_role("decode", 1), kv=380_000)  # 4 to 6: 5
    assert done(view) == [("mutate", "decode", 1, (0,)), ("load", "decode", 3, ())]
    alone = a_view(a_role("prefill", 1, loading=3), a_role("decode", 1), kv=95_001)
    assert done(alone) == [("load", "decode", 1, ())]


def test_decode_cancels_and_revives_before_it_mutates() -> None:
    roles = a_role("prefill", 4), a_role("decode", 1, draining=1)
    view = a_view(*roles, backlog=21_000, kv=300_000, parked=(50,))  # 4 to 4
    assert done(view) == [
        ("cancel_drain", "decode", 1, (101,)),
        ("revive", "decode", 1, (50,)),
        ("mutate", "decode", 1, (0,)),
        ("load", "prefill", 1, ()),
    ]


@pytest.mark.parametrize(("start_from", "loads"), [(0, 0), (1, 1), (2, 1), (3, 1), (4, 0)])
def test_decode_grows_with_prefill_that_grows_much(start_from: int, loads: int) -> None:
    view = a_view(a_role("prefill", 1), a_role("decode", 1), backlog=21_000)  # 3 to 5: 3 more
    rules = ScalingRules(prescale_from=start_from, ways=())
    expected = [("load", "prefill", 3, ())] + [("load", "decode", 1, ())] * loads
    assert done(view, rules) == expected


def test_prescaling_keeps_to_the_maximum_and_adds_nothing_to_a_larger_want() -> None:
    grows, by = a_role("prefill", 1), ScalingRules(prescale_by=3, ways=())
    first = ("load", "prefill", 3, ())
    full, room = a_role("decode", 2, maximum=2), a_role("decode", 2, maximum=4)
    assert done(a_view(grows, full, backlog=21_000), by) == [first]
    assert done(a_view(grows, room, backlog=21_000), by) == [first, ("load", "decode", 2, ())]
    wants_more = a_view(grows, a_role("decode", 1), backlog=21_000, kv=500_000)  # 6 to 7: 7
    assert done(wants_more, by) == [first, ("load", "decode", 6, ())]


def test_prescaling_outdoes_a_time_out_that_ends_now() -> None:
    rules = ScalingRules(down_after_ns=0, ways=())
    view = a_view(a_role("prefill", 1), a_role("decode", 3), backlog=21_000)
    decisions = LoadMonitor(rules).scale(view)
    assert acts(decisions) == [("load", "prefill", 3, ()), ("load", "decode", 1, ())]
    assert decisions[1].reason.startswith("prefill grows by 3; ")


def test_a_model_gives_of_its_largest_surplus_the_instance_idle_longest() -> None:
    def fleet(model: str, *idle_since_ns: int | None, minimum: int = 0) -> ScalingView:
        views = tuple(
            InstanceView(id, "serving", 0 if idle is not None else 1, idle)
            for id, idle in enumerate(idle_since_ns)
        )
        return replace(a_view(FixedRole("both", views, minimum, 9)), model=model)

    arbiter = SurplusArbiter(lambda model: QUIET)
    small, large, busy = fleet("a", 1, 2), fleet("b", 9, 5, 5), fleet("c", *[None] * 6)
    offers = [arbiter.offer(view) for view in (small, large, busy)]
    assert offers == [Offer(-2, 1, "a", "both", 0), Offer(-3, 5, "b", "both", 1), None]
    assert arbiter.offer(fleet("a", 1, 2, minimum=2)) is None
    reason = "d lacks instances, and b has 3 more than it needs"
    assert taken_for("d", min(filter(None, offers))) == ScaleDecision(
        act="drain", model="b", role="both", count=1, instances=(1,), reason=reason
    )


@pytest.mark.parametrize(
    ("lower", "upper"), [(0, 1), (-1, 1), (0.8, 0.7), (0.5, float("inf")), (float("nan"), 1)]
)
def test_bounds_that_make_no_sense_are_refused(lower: float, upper: float) -> None:
    refuses(ValueError, "0 < lower <= upper", Bounds, lower, upper)


def test_rules_that_make_no_sense_are_refused() -> None:
    for wrong in ({"down_after_ns": -1}, {"prescale_from": -1}, {"prescale_by": -1}):
        with pytest.raises(ValueError, match=">= 0"):
            ScalingRules(**wrong)  # type: ignore[arg-type]
    for words in ({"link_rule": "square"}, {"ways": ("load",)}):
        refuses(ValueError, "link_rule is shipped or linear", ScalingRules, **words)


LOADS = st.one_of(st.integers(0, 10), st.integers(0, 50).map(lambda n: n * 1_000), st.integers(0, 10**6))
BOUNDS = st.tuples(st.integers(1, 99), st.integers(1, 99)).map(lambda b: Bounds(min(b) / 100, max(b) / 100))


@given(LOADS, LOADS, BOUNDS, st.sampled_from([3, 13_000, 2 / 3]), st.integers(0, 9))
def test_more_load_never_needs_fewer(a: int, b: int, bounds: Bounds, rate: float, decode: int) -> None:
    low, high = min(a, b), max(a, b)
    for rule in ("shipped", "linear"):
        less, more = (link_need(load, rate, bounds, rule, decode) for load in (low, high))
        assert less.least <= more.least and less.most <= more.most
        assert less.least <= less.most


@st.composite
def views(draw: st.DrawFn) -> ScalingView:
    def role(name: Role) -> FixedRole:
        counts = [draw(st.integers(0, 4)) for _ in range(3)]
        minimum = draw(st.integers(0, 3))
        return a_role(name, counts[0], counts[1], counts[2], minimum, minimum + draw(st.integers(0, 8)))

    pairs: list[tuple[Role, ...]] = [("prefill", "decode"), ("both",), ("prefill",)]
    roles = draw(st.sampled_from(pairs))
    return a_view(
        *(role(name) for name in roles),
        backlog=draw(LOADS), kv=draw(LOADS), migrating=draw(LOADS),
        spare=draw(st.integers(0, 12)), parked=tuple(range(50, 50 + draw(st.integers(0, 2)))),
    )  # fmt: skip


RULES = st.builds(
    ScalingRules,
    link_rule=st.sampled_from(["shipped", "linear"]),
    down_after_ns=st.sampled_from([0, TIMEOUT_NS]),
    prescale_from=st.integers(0, 3),
    prescale_by=st.integers(0, 3),
    ways=st.sampled_from([(), ("cancel_drain", "revive"), ("cancel_drain", "revive", "mutate")]),
)


def supply_after(view: ScalingView, decisions: tuple[ScaleDecision, ...], wanted: bool) -> dict[str, int]:
    """Supply per role once the decisions are carried out; ``wanted`` counts what is short as if it came."""
    supply: dict[str, int] = {role.role: role.supply for role in view.roles}
    for one in decisions:
        supply[one.role] += {"drain": -1, "shortage": int(wanted)}.get(one.act, 1) * one.count
        if one.act == "mutate":
            supply["prefill"] -= one.count
    return supply


@given(views(), RULES, LOADS)
def test_more_backlog_never_wants_fewer_instances(view: ScalingView, rules: ScalingRules, more: int) -> None:
    heavier = replace(view, backlog_tokens=view.backlog_tokens + more)
    less, after = (supply_after(one, LoadMonitor(rules).scale(one), True) for one in (view, heavier))
    assert sum(less.values()) <= sum(after.values())


@given(views(), RULES)
def test_every_decision_can_be_carried_out(view: ScalingView, rules: ScalingRules) -> None:
    decisions = LoadMonitor(rules).scale(view)
    kinds: list[InstanceState] = ["serving", "loading", "draining"]
    states = {
        one.id: (role.role, kind) for role in view.roles for kind in kinds for one in role.in_state(kind)
    }
    taken = [id for one in decisions for id in one.instances]
    assert len(taken) == len(set(taken)), "no instance is asked for twice"
    for one in decisions:
        assert one.count == len(one.instances) or (one.count > 0 and one.act in ("load", "shortage"))
        wanted = {
            "cancel_drain": (one.role, "draining"), "drain": (one.role, "serving"), "revive": None,
            "mutate": ("prefill", "serving"),
        }  # fmt: skip
        assert all(states.get(id) == wanted[one.act] for id in one.instances)
        assert one.act != "revive" or set(one.instances) <= set(view.parked)
    assert sum(one.count for one in decisions if one.act == "load") <= view.spare
    reached, wanted_ = supply_after(view, decisions, False), supply_after(view, decisions, True)
    for role in view.roles:
        least = max(role.minimum, min(role.maximum, need_of(view, role, rules).least))
        assert wanted_[role.role] >= least, "what is needed is got, or said to be short"
        assert reached[role.role] <= max(role.maximum, role.supply)


@given(views(), RULES)
def test_the_same_view_gets_the_same_answer(view: ScalingView, rules: ScalingRules) -> None:
    roles = [role for role in view.roles[::-1] if isinstance(role, FixedRole)]
    turned = tuple(replace(role, instances=role.instances[::-1]) for role in roles)
    other = replace(view, roles=turned, parked=view.parked[::-1])
    assert LoadMonitor(rules).scale(view) == LoadMonitor(rules).scale(other)


# ---- rules from a configuration


def test_rules_are_made_from_the_plain_values_of_a_configuration() -> None:
    assert scaling_rules() == ScalingRules()
    rules = scaling_rules(
        prefill=[0.2, 1],
        memory=[0.5, 0.5],
        link=[1, 2],
        link_rule="linear",
        scale_down_ms=0.5,
        prescale_from=0,
        prescale_by=3,
        ways=["mutate"],
    )
    assert rules == ScalingRules(
        prefill=Bounds(0.2, 1),
        memory=Bounds(0.5, 0.5),
        link=Bounds(1, 2),
        link_rule="linear",
        down_after_ns=500_000,
        prescale_from=0,
        prescale_by=3,
        ways=("mutate",),
    )
    assert scaling_rules(scale_down_ms=1500).down_after_ns == 1500 * MS
    view = a_view(a_role("both", 3, draining=1), backlog=30_001)  # 3.0001 s of one
    assert acts(load_monitor(prefill=[1, 1], ways=[]).scale(view)) == [("load", "both", 1, ())]
    assert load_monitor(prefill=[0.7, 1.1], ways=[]).rules_of("m").prefill == Bounds(0.7, 1.1)


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("prefill", [0.7], r"\[lower, upper\]"),
        ("memory", [0.9, 0.7], "0 < lower <= upper"),
        ("link", 0.4, r"\[lower, upper\]"),
        ("link", [0.4, "0.8"], r"\[lower, upper\]"),
        ("prefill", "ab", r"\[lower, upper\]"),
        ("prefill", [True, 2], r"\[lower, upper\]"),
        ("memory", [0.5, float("nan")], "0 < lower <= upper"),
        ("link_rule", "square", "shipped or linear"),
        ("scale_down_ms", -1, "0 ms or more"),
        ("scale_down_ms", float("inf"), "0 ms or more"),
        ("scale_down_ms", "333", "0 ms or more"),
        ("prescale_from", -1, "0 or more"),
        ("prescale_by", 1.5, "0 or more"),
        ("prescale_by", True, "0 or more"),
        ("ways", ["load"], "cancel_drain, revive, mutate"),
        ("ways", "revive", "must be a list"),
    ],
)
def test_a_wrong_value_is_refused_in_a_sentence_that_names_its_key(key: str, value: Any, remedy: str) -> None:
    refuses(ValueError, f"^{key} .*{remedy}", load_monitor, **{key: value})


# ---- the short way: loads between which nothing is to be decided


@dataclass
class Untouchable:
    """A role that may be counted and not looked at."""

    role: Role
    supply: int
    minimum: int = 0
    maximum: int = 14

    def in_state(self, state: InstanceState) -> list[InstanceView]:
        raise AssertionError(f"asked for the instances that are {state}")


@pytest.mark.parametrize("names", [("prefill", "decode"), ("both",)])
def test_a_quiet_call_looks_at_no_instance(names: tuple[Role, ...]) -> None:
    quiet = a_view(*(a_role(name, 3) for name in names), backlog=21_000, kv=270_000)
    shut = replace(quiet, roles=tuple(Untouchable(name, 3) for name in names))
    monitor = LoadMonitor(ScalingRules())
    assert monitor.scale(quiet) == () == monitor.scale(shut)
    assert monitor.scale(replace(shut, backlog_tokens=20_000, kv_tokens=280_000)) == ()
    for busier in (replace(shut, backlog_tokens=21_001), replace(shut, kv_tokens=285_001)):
        refuses(AssertionError, "asked for", monitor.scale, busier)
    assert LoadMonitor(ScalingRules(), fast=False).scale(shut) == ()


def test_waiting_for_the_time_out_looks_at_no_instance() -> None:
    monitor = LoadMonitor(QUIET)
    assert monitor.scale(a_view(a_role("both", 3))) == ()
    shut = a_view(Untouchable("both", 3), now_ns=TIMEOUT_NS - 1)
    assert monitor.scale(shut) == ()
    assert acts(monitor.scale(a_view(a_role("both", 3), now_ns=TIMEOUT_NS))) == [("drain", "both", 1, (0,))]


@given(
    st.sampled_from(["prefill", "decode", "both"]), st.integers(0, 6), st.integers(0, 4), st.integers(0, 5),
    RULES, BOUNDS, st.sampled_from([3, 13_000, 2 / 3]), st.integers(-1, 6),
)  # fmt: skip
def test_a_band_ends_where_the_need_changes(
    name: Role,
    supply: int,
    minimum: int,
    more: int,
    rules: ScalingRules,
    bounds: Bounds,
    rate: float,
    at: int,
) -> None:
    """Every load one below, at and one above each end, and none, against the need worked out in full."""
    rules = replace(rules, prefill=bounds)
    role = a_role(name, supply, minimum=minimum, maximum=minimum + more)
    view = replace(a_view(role), prefill_tokens_per_s=rate)
    band = Band(view, role, rules)
    ends = [
        [0, *(int(end) + step for end in pair if abs(end) < float("inf") for step in (-1, 0, 1))]
        for pair in (
            (band.low_backlog, band.high_backlog),
            (band.low_kv, band.high_kv),
            (band.low_migrating, band.high_migrating),
        )
    ]
    for backlog, kv, migrating in product(*(sorted({max(end, 0) for end in some}) for some in ends)):
        loaded = replace(view, backlog_tokens=backlog, kv_tokens=kv, migrating_tokens=migrating)
        need = need_of(loaded, role, rules)
        amounts = (backlog, kv, migrating)
        enough = all(
            amount <= high
            for amount, high in zip(amounts, (band.high_backlog, band.high_kv, band.high_migrating))
        )
        used = any(
            amount >= low for amount, low in zip(amounts, (band.low_backlog, band.low_kv, band.low_migrating))
        )
        assert (enough and used) == (within(role, need.least) <= supply <= within(role, need.most))
        if minimum <= supply <= minimum + more:
            assert enough == (within(role, need.least) <= supply)


NEAR = st.one_of(
    LOADS, st.integers(0, 8).map(lambda n: n * 7_000), st.integers(0, 8).map(lambda n: n * 95_000)
)


@st.composite
def histories(draw: st.DrawFn) -> list[ScalingView]:
    """Views of two models in time order, most of them little different from the one before."""
    present = {"m": draw(views()), "n": replace(draw(views()), model="n")}
    past, now_ns = [], 0
    for _ in range(draw(st.integers(1, 25))):
        now_ns += draw(st.sampled_from([0, 100 * MS, TIMEOUT_NS - 1, TIMEOUT_NS]))
        model = draw(st.sampled_from("mmmn"))
        view = replace(present[model], now_ns=now_ns)
        what = draw(st.sampled_from(["same", "load", "load", "load", "fleet", "rates"]))
        if what == "load":
            name = draw(st.sampled_from(["backlog_tokens", "kv_tokens", "migrating_tokens"]))
            changed: Any = {name: draw(NEAR)}
            view = replace(view, **changed)
        elif what == "fleet":
            view = replace(view, roles=draw(views()).roles)
        elif what == "rates":
            view = replace(view, prefill_tokens_per_s=draw(st.sampled_from([10_000, 9_999.5, 3])))
        present[model] = view
        past.append(view)
    return past


@given(histories(), RULES, RULES)
def test_the_short_way_changes_no_decision(
    past: list[ScalingView], rules: ScalingRules, other: ScalingRules
) -> None:
    short, full = (LoadMonitor(rules, {"n": other}, fast=fast) for fast in (True, False))
    for view in past:
        assert short.scale(view) == full.scale(view)
