"""What live scaling is for, shown on whole systems: throughput of a pair, chain tails, decode helpers, a live
one in the place of one that turns to decoding, plans, embedded prompts. Times are exact: a layer takes 1 ms.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from policies.live.live_scaling import LiveScaling
from policies.live.zigzag import BestEffort, IlpFree, StopTheWorld
from policies.live.zigzag_ilp import front_greedy
from policies.provisioning import NetworkProvisioner
from serving.protocols.live import LivePlan, LiveView
from serving.vocabulary.actions import Fail, Load, Run, Send, SwitchRole
from serving.vocabulary.events import Loaded, Woke
from tests.worlds import elastic_world
from tests.worlds.drawn_elastic import Drawn
from tests.worlds.drawn_live import LiveCase
from tests.worlds.elastic_world import MS, Setting, Told
from tests.worlds.scripted_scaling import Script
from tests.worlds.strategies import NS
from tests.worlds.tall_live import LAYER_NS, LAYERS, PROMPT, Seen, Spied, asked, slow, tall


def test_the_throughput_of_a_saturated_pair_grows_with_every_layer_until_it_is_twice() -> None:
    """1/(L-k) batches per layer time with k <= L/2 layers there, then 2/L (OSDI 2025, section 5.2).

    Memory for four prompts: more would be begun ahead, and end faster than 2/L later. One more or less is
    rounding. With more than L/2 layers the new one keeps up with the old one, which then waits for up to a
    layer of each batch: 2/(L+1) at least.
    """
    seen = Seen.of(asked(tall(1, slow(IlpFree())), 220, 1))
    came, ends = seen.layers_ns(), [found[3] for found in seen.ran.done.values()]
    assert sorted(came) == list(range(LAYERS + 1))
    for layers in range(LAYERS):
        first_ns, last_ns = came[layers], came[layers + 1]
        done = sum(first_ns < end_ns <= last_ns for end_ns in ends)
        span = (last_ns - first_ns) / LAYER_NS
        most = span / (LAYERS - layers) if layers <= LAYERS // 2 else span * 2 / LAYERS
        least = most if layers <= LAYERS // 2 else span * 2 / (LAYERS + 1)
        assert least - 1 <= done <= most + 1, (layers, least, done, most)
    assert max(ends) > came[LAYERS], "the queue was too short to be measured"
    assert seen.counts.layer_counts == set(range(1, LAYERS))


def test_stopped_the_new_instance_adds_nothing_while_it_loads() -> None:
    """The same load, to compare with: 1/L throughout."""
    seen = Seen.of(asked(tall(1, slow(StopTheWorld())), 220, 1))
    came = seen.layers_ns()
    loading = [end_ns for _, _, _, end_ns, _ in seen.ran.done.values() if came[0] < end_ns <= came[LAYERS]]
    assert abs(len(loading) - (came[LAYERS] - came[0]) / LAYER_NS / LAYERS) <= 1
    assert (seen.counts.passes, seen.passes()) == (0, [])


# Fig. 12: which instances of one scale-up are live.


def two_more(order: str, prefill: int, monkeypatch: pytest.MonkeyPatch, **more: Any) -> list[Load]:
    """The loads when two new prefill instances are wanted at once, and a queue waits. Hosts of one GPU."""
    provisioners = {order: lambda: NetworkProvisioner(order=order)}  # type: ignore[arg-type]
    monkeypatch.setattr(elastic_world, "PROVISIONERS", provisioners)
    told = Told(
        Setting(
            hosts=8, gpus_per_host=1, start={"prefill": prefill, "decode": 2}, provision=order,
            whims=lambda: Script((("load", "prefill", 2, ()),)), live=slow(IlpFree(), **more),
        )
    )  # fmt: skip
    for number in range(6):
        told.arrive(number, prompt=16)
    actions = told.controller.handle(100 * MS, Woke())
    return [one for one in actions if isinstance(one, Load)]


@pytest.mark.parametrize(
    ("order", "prefill", "per_partner", "tails_only", "live"),
    [
        ("breadth", 2, 1, True, 2),  # Fig. 12(b): two chains have two tails
        ("depth", 2, 1, True, 1),  # one chain has one
        ("depth", 2, 1, False, 2),  # unless those that forward may be live too
        ("breadth", 1, 1, True, 1),  # one partner for two tails
        ("breadth", 1, 2, True, 2),  # that works with two
    ],
)
def test_the_tails_of_chains_are_live_as_far_as_there_are_partners(
    order: str, prefill: int, per_partner: int, tails_only: bool, live: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = two_more(order, prefill, monkeypatch, targets_per_partner=per_partner, tails_only=tails_only)
    assert len(loads) == 2
    forwarding = {source for load in loads for source in load.sources}
    assert sum(load.targets[0] in forwarding for load in loads) == (order == "depth")
    marked = [load for load in loads if load.reason.endswith("; live")]
    assert len(marked) == live
    assert [load.every_layer for load in loads] == [load in marked for load in loads]
    if tails_only:
        assert not any(load.targets[0] in forwarding for load in marked)


def both_at_their_first_layer(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Instances 5 and 4 run the first layer of requests 2 and 3, while 0 and 1 compute 0 and 1."""
    provisioners = {"breadth": NetworkProvisioner}
    monkeypatch.setattr(elastic_world, "PROVISIONERS", provisioners)
    told = Told(
        Setting(
            hosts=8, gpus_per_host=1, start={"prefill": 2, "decode": 2}, provision="breadth",
            whims=lambda: Script((("load", "prefill", 2, ()),)), live=slow(IlpFree()),
        )
    )  # fmt: skip
    for number in range(4):
        told.arrive(number, prompt=16)
    begun = told.controller.handle(100 * MS, Woke())
    to = {one.targets[0][1]: one.load for one in begun if isinstance(one, Load)}
    told.now_ns = 100 * MS
    assert sorted(to) == [4, 5]
    assert layers_of(told.fact(Loaded(to[5], 0, 1, False))) == [(5, (0, 1), [2])]
    assert layers_of(told.fact(Loaded(to[4], 0, 1, False))) == [(4, (0, 1), [3])]
    return told


def sent_activations(actions: list[Any]) -> list[tuple[int, int, tuple[int, ...]]]:
    """(source, target, requests)."""
    sends = [one for one in actions if isinstance(one, Send) and one.what == "activations"]
    return [(one.source, one.target, one.requests) for one in sends]


def test_an_idle_one_takes_the_batch_that_came_first_whoever_began_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = both_at_their_first_layer(monkeypatch)
    told.ran(4), told.ran(5)
    assert sent_activations(told.ran(0)) == [(5, 0, (2,))]


def test_idle_ones_wait_for_layers_of_different_new_ones_and_leave_the_queue_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Request 4 waits at first: the old ones are promised 2 and 3, and the new ones begin it."""
    told = both_at_their_first_layer(monkeypatch)
    told.arrive(4, prompt=16)
    assert sent_activations(told.ran(0)) == [] == layers_of(told.ran(1))
    ended = told.ran(4)  # request 3 came later, and goes to who was idle later
    assert sent_activations(ended) == [(4, 1, (3,))]
    assert layers_of(ended) == [(4, (0, 1), [4])], "not to an old one, which would have begun it at once"
    assert sent_activations(told.ran(5)) == [(5, 0, (2,))]


def test_who_waited_for_a_layer_of_an_instance_that_is_lost_waits_for_the_next_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = both_at_their_first_layer(monkeypatch)
    told.ran(0)
    assert Fail(2, "") in told.lose(5)
    assert sent_activations(told.ran(4)) == [(4, 0, (3,))]


# Where nobody prefills, those that decode help.


def test_without_prefill_instances_layers_run_between_steps_of_one_that_decodes() -> None:
    """Requests 30 ms apart, so that those before decode when the next one's layers run; they keep waiting."""
    case = tall(0, slow(IlpFree()), load_layers=20)
    roomy = LiveCase(replace(case.drawn, setting=replace(case.drawn.setting, kv_blocks=64)), case.shape)
    seen = Seen.of(asked(roomy, 3, 40, gap_ns=30 * MS))
    old, new = 0, 1
    rest = [(layers, ids) for _, replica, layers, ids in seen.passes() if replica == old]
    assert [ids for _, ids in rest] == [[0], [1], [2]]
    assert all(0 < first < last == LAYERS for (first, last), _ in rest)
    firsts = {ids[0]: first for (first, _), ids in rest}
    kv_bytes = PROMPT * case.shape.kv_bytes_per_token
    sends = {send[3][0]: send for _, send in seen.sends("kv")}
    for request, first in firsts.items():  # the first layers' KV goes where the others ran
        assert sends[request][4:7] == [new, old, kv_bytes * first // LAYERS]
    runs = [(now_ns, one) for now_ns, _, actions in seen.lines for one in actions if one[0] == "run"]
    kinds = [isinstance(one[-2], list) for _, one in runs if one[1] == old]
    assert kinds == [True, False, True, False, True, False], "a pass, then decode steps, and so on"
    sent_ns = {event[1]: now_ns for now_ns, event, _ in seen.lines if event[0] == "sent"}
    for request in firsts:
        token_ns = seen.ran.done[request][2]
        adopted = [
            now_ns
            for now_ns, _, actions in seen.lines
            for one in actions
            if one[:3] == ["joinbatch", old, [request]]
        ]
        assert token_ns < sent_ns[sends[request][1]] <= adopted[0]
    # Those who decode wait for the pass, and for nothing else.
    assert max(seen.ran.all_gaps) == ((LAYERS - 1) * LAYER_NS + 2 * MS) * NS


# A prefill instance turns to decoding, and a live one takes its place.


def test_the_place_of_one_that_decodes_now_is_taken_by_a_live_one_in_the_same_decision() -> None:
    told = Told(
        Setting(
            hosts=8, gpus_per_host=1, start={"prefill": 2, "decode": 1}, provision="multicast",
            ways=("mutate",), bounds={"prefill": (1, 2), "decode": (1, 3)}, live=slow(IlpFree()),
            prefill_tokens_per_s=20.0, kv_blocks=16, rules={"prefill": (0.5, 0.9)},
        )
    )  # fmt: skip
    for number in range(10):
        told.arrive(number, prompt=6, cap=26)
    told.ran(0), told.ran(1)
    begun = told.controller.handle(100 * MS, Woke())
    assert [one for one in begun if isinstance(one, SwitchRole)] == [SwitchRole(0, "decode", begun[0].reason)]
    (load,) = [one for one in begun if isinstance(one, Load)]
    assert (load.targets, load.every_layer) == ((("replica", 3),), True)
    assert load.reason.startswith("replaces mutated instances") and load.reason.endswith("; live")
    # With its first layer the new one takes what waits, and the one that still prefills runs the others.
    told.now_ns = 100 * MS
    assert layers_of(told.fact(Loaded(0, 0, 1, False))) == [(3, (0, 1), [6, 7])]
    told.ran(3)
    (sent,) = [one for one in told.ran(1) if isinstance(one, Send) and one.what == "activations"]
    assert (sent.source, sent.target, sent.requests, sent.size_bytes) == (3, 1, (6, 7), 2 * 12)
    assert layers_of(told.sent(sent.transfer)) == [(1, (1, 4), [6, 7])]


def layers_of(actions: list[Any]) -> list[tuple[int, tuple[int, int], list[int]]]:
    """(replica, layers, requests) of the passes over some layers among the actions."""
    runs = [one for one in actions if isinstance(one, Run) and one.layers is not None]
    # Type: ignore[misc]
    return [(one.replica, one.layers, [chunk[0] for chunk in one.chunks]) for one in runs]


# Plans of the integer program.


def planned(scheduler: Spied, load_layers: int = 12, count: int = 140, head: int = 0) -> Seen:
    """``head``: embedding and head are as large as so many layers."""
    case = tall(1, lambda: LiveScaling(scheduler, 0), load_layers)
    width, layer = case.shape.hidden, case.shape.parameters_of(case.shape.layers - 1)
    shape = replace(case.shape, vocab=head * layer // width) if head else case.shape
    setting = replace(case.drawn.setting, kv_blocks=64, size_bytes=shape.weight_bytes)
    return Seen.of(asked(LiveCase(Drawn(setting, ()), shape), count, 1))


def on_new(seen: Seen) -> dict[int, int]:
    """Request -> how many layers the new instance ran of it while it loaded."""
    rounded_up_ns, found = seen.layers_ns()[LAYERS], Counter[int]()
    for now_ns, replica, (first, last), ids in seen.passes():
        if replica == 2 and now_ns < rounded_up_ns:
            found[ids[0]] += last - first
    return found


def test_the_split_of_the_integer_program_is_what_runs() -> None:
    spied = Spied(ahead=6, solve_ns=0)
    seen = planned(spied)
    ((view, plan),) = spied.answers
    assert (view.loaded, view.layers, view.batch_layer_ns) == (1, LAYERS, (LAYER_NS,) * 6)
    assert abs(view.layer_load_ns - 12 * LAYER_NS) < LAYER_NS
    assert plan.rule == "split" and len(set(plan.target_layers)) > 1
    assert (seen.counts.plans_used, seen.counts.plans_late, seen.counts.plans_refused) == (1, 0, 0)
    ran = on_new(seen)
    assert [ran[min(ran) + batch] for batch in range(6)] == list(plan.target_layers)


class Written(Spied):
    """Answers every view with one split."""

    def plan(self, view: LiveView) -> LivePlan:
        self.answers.append((view, LivePlan("split", (1, 0, 1, 3, 1, LAYERS), (0,) * 6, "as written")))
        return self.answers[-1][1]


def test_a_split_that_no_rule_would_choose_runs_as_it_is_written() -> None:
    """Batch 1 (from 0) is an old one's alone; 4 waits for 3, whose third layer has to come first."""
    seen = planned(Written(ahead=6, solve_ns=0), head=3)
    ran = on_new(seen)
    first = min(ran)
    assert [ran.get(first + batch, 0) for batch in range(6)] == [1, 0, 1, 3, 1, LAYERS - 1]
    pulls = [(ids[0] - first, layers) for _, replica, layers, ids in seen.passes() if replica != 2]
    assert pulls[:5] == [(0, (1, 8)), (1, (0, 8)), (2, (1, 8)), (3, (3, 8)), (4, (1, 8))]
    last = [now_ns for now_ns, _, layers, ids in seen.passes() if (layers, ids) == ((7, 8), [first + 5])]
    assert len(last) == 1 and last[0] >= seen.layers_ns()[LAYERS], (
        "without the head, which comes last, no token is sampled"
    )


class Ones(Spied):
    """One layer of every batch for the new instance."""

    def plan(self, view: LiveView) -> LivePlan:
        count = view.batches
        self.answers.append((view, LivePlan("split", (1,) * count, (0,) * count, "one each")))
        return self.answers[-1][1]


def test_when_everything_is_loaded_the_new_instance_ends_what_it_has_begun() -> None:
    """Six batches are planned and loaded in the time of one: quotas end, or an old one would run them all."""
    seen = planned(Ones(ahead=6, solve_ns=0), load_layers=1)
    rounded_up_ns = seen.layers_ns()[LAYERS]
    rest = [
        (now_ns, ids) for now_ns, replica, layers, ids in seen.passes() if (replica, layers) == (2, (1, 8))
    ]
    assert len(rest) >= 2 and all(now_ns >= rounded_up_ns for now_ns, _ in rest)


def test_a_plan_that_takes_longer_than_the_first_layer_is_late_and_made_for_what_is_there_then() -> None:
    """Until then the new instance does nothing: only the excess over the first layer's load delays."""
    spied = Spied(ahead=6, solve_ns=17 * MS)
    seen = planned(spied)
    came = seen.layers_ns()
    assert came[1] - came[0] < 17 * MS < came[2] - came[0]
    assert (seen.counts.plans_used, seen.counts.plans_late) == (1, 1)
    ((view, plan),) = spied.answers
    assert view.loaded == 2 and plan.rule == "split"
    assert min(now_ns for now_ns, _, _, _ in seen.passes()) == came[2]
    later = planned(Spied(ahead=6, solve_ns=29 * MS))  # two layers come before it is ready
    assert min(now_ns for now_ns, _, _, _ in later.passes()) == later.layers_ns()[3]
    assert (later.counts.plans_used, later.counts.plans_late) == (1, 1)
    in_time = planned(Spied(ahead=6, solve_ns=10 * MS))
    assert min(now_ns for now_ns, _, _, _ in in_time.passes()) == in_time.layers_ns()[1]


def test_a_stopped_solve_is_played_by_the_best_split_it_met() -> None:
    spied = Spied(ahead=6, solve_ns=0, deterministic_limit=1e-9)
    seen = planned(spied)
    ((view, plan),) = spied.answers
    assert plan.reason.startswith("ILP stopped") and seen.counts.plans_used == 1
    assert plan.target_layers == front_greedy(view)
    ran = on_new(seen)
    assert [ran[min(ran) + batch] for batch in range(6)] == list(plan.target_layers)


def test_best_effort_asks_for_each_batch_and_gives_it_half_of_the_layers_at_most() -> None:
    seen = Seen.of(asked(tall(1, slow(BestEffort())), 220, 1))
    ran, came = on_new(seen), seen.layers_ns()
    assert seen.counts.plans_used == len(ran) > 100
    begun_ns = {
        ids[0]: now_ns for now_ns, replica, (first, _), ids in seen.passes() if replica == 2 and not first
    }
    ended = [request for request in ran if begun_ns[request] < came[LAYERS - 1]]  # before quotas end
    assert {ran[request] for request in ended} == set(range(1, LAYERS // 2 + 1))
    for request in ended:
        there = max(count for count, at_ns in came.items() if at_ns <= begun_ns[request])
        assert ran[request] == min(there, LAYERS // 2)


# Who embeds.


def test_an_old_instance_embeds_the_prompts_so_that_layers_may_come_first() -> None:
    """An embedding as large as five layers: without it the first layer runs that much earlier."""
    first_ns = {}
    for embedding in ("target", "source"):
        case = tall(1, slow(IlpFree(), embedding), load_layers=20)
        heavy = replace(
            case.shape, vocab=5 * case.shape.parameters_of(case.shape.layers - 1) // case.shape.hidden
        )
        setting = replace(case.drawn.setting, size_bytes=heavy.weight_bytes)
        seen = Seen.of(asked(LiveCase(Drawn(setting, ()), heavy), 100, 1))
        embedded = {send[3][0]: send for _, send in seen.sends("activations") if "embedded" in send[7]}
        sent_ns = {event[1]: now_ns for now_ns, event, _ in seen.lines if event[0] == "sent"}
        begun = {ids[0]: now_ns for now_ns, replica, (first, _), ids in seen.passes() if not first}
        assert len(begun) > 10 and set(embedded) == (set(begun) if embedding == "source" else set())
        for request, send in embedded.items():
            assert (send[4], send[5], send[6]) == (0, 2, 2 * PROMPT)
            assert sent_ns[send[1]] <= begun[request], "layers ran before the prompt was there"
        first_ns[embedding] = min(begun.values()) - seen.layers_ns()[0]
    assert 5 * 20 * MS < first_ns["target"] - first_ns["source"] < 5 * 21 * MS
