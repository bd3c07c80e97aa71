"""A world that cannot move is told at once, and none that would move later is told."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from servetwin.config.compose.compose import load_config
from servetwin.run.simulate import execute, prepare
from serving.elastic.elastic import Elastic
from serving.elastic.stall_detection import LOOKS, PATIENCE_NS, StallDetector
from serving.vocabulary.actions import Action
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Event, Woke
from tests.worlds.elastic_world import MS, Whims
from tests.worlds.wide_world import PATIENCE_NS as WORLD_PATIENCE_NS
from tests.worlds.wide_world import WideWorld, draw_requests, draw_setting

Ends = Callable[[Elastic], list[int] | None]


class Pending:
    """The pending changes of ``elastic``, but for the times at which states end."""

    def __init__(self, elastic: Elastic, expiry_times_ns: Ends) -> None:
        self._elastic, self._expiry_times_ns = elastic, expiry_times_ns

    def change_counts(self) -> tuple[int, int]:
        return self._elastic.change_counts()

    def expiry_times_ns(self) -> list[int] | None:
        return self._expiry_times_ns(self._elastic)


class Judged(WideWorld):
    """A wide world that goes on after the verdict, which is compared with what comes of it.

    ``over_ns``: when the rule said that nothing comes any more. ``last_ns``: when something came last;
    ``looks_after``: how often was looked since, with nothing else due.
    """

    expiry_times_ns: Ends = staticmethod(Elastic.expiry_times_ns)

    def watch(self) -> None:
        self.still = StallDetector(Pending(self.controller.elastic, self.expiry_times_ns))
        self.over_ns: int | None = None
        self.last_ns = self.events = self.looks_after = 0

    def tell(self, event: Event) -> None:
        elastic = self.controller.elastic
        if isinstance(event, Woke):
            alone = not self._due
            self.looks_after += alone
            if self.over_ns is None and self.still.is_stalled(self.now_ns, self.events, alone):
                self.over_ns = self.now_ns
        else:
            self.last_ns, self.looks_after = self.now_ns, 0
        self.events += 1
        before = elastic.change_counts()
        super().tell(event)
        if elastic.change_counts() != before:
            self.last_ns, self.looks_after = self.now_ns, 0


def judged(seed: int) -> Judged:
    """The world of a seed, long after its last request; few GPUs in most, so that many cannot move."""
    random = Random(seed)
    setting = replace(draw_setting(random), whims=None, park_ns=random.choice([0, 1, 10]) * 500 * MS)
    setting = replace(setting, rules={**setting.rules, "scale_down_ms": random.choice([0, 333, 5000])})
    if random.random() < 0.6:
        setting = replace(setting, hosts=1)
        setting = replace(setting, start=dict.fromkeys(setting.start, 0), bounds=None)
    world = Judged(setting, random)
    world.watch()
    requests = draw_requests(random, setting)
    for request, output_tokens in requests:
        world.arrive(request, output_tokens)
    world.run(requests[-1][0].arrival_ns + WORLD_PATIENCE_NS)
    return world


def is_right(world: Judged) -> bool:
    """Told of a world in which nothing came any more, and of every such that still looks."""
    if world.over_ns is None:
        return not world.outputs or world.looks_after < 3 * LOOKS
    return bool(world.outputs) and world.last_ns < world.over_ns


# Worlds that move again when parameters on free GPUs end, or a scaler has waited.
MOVE_LATER = (94, 98, 109, 137, 258, 320, 361, 364)


CANNOT_MOVE = (10, 18, 31, 47, 48, 49, 50)


@pytest.mark.parametrize("seed", [*range(7), *CANNOT_MOVE, *MOVE_LATER])
def test_the_verdict_is_what_comes_of_the_world(seed: int) -> None:
    world = judged(seed)
    assert is_right(world), (world.last_ns, world.over_ns, world.now_ns)


def test_one_that_decodes_runs_when_a_batch_that_others_ended_leaves_its_memory() -> None:
    """Its requests ended with their first token, so that no KV was to be sent."""
    assert judged(685).ended["finished"] == 32


@pytest.mark.parametrize("seed", CANNOT_MOVE[:3])
def test_a_world_that_cannot_move_is_told_of(seed: int) -> None:
    world = judged(seed)
    assert world.over_ns is not None and world.over_ns < world.now_ns


def test_without_what_changes_by_time_these_worlds_are_misjudged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Judged, "expiry_times_ns", staticmethod(lambda elastic: []))
    assert not any(is_right(judged(seed)) for seed in MOVE_LATER[:4])


def elastic_of(**changed: Any) -> Elastic:
    """Of a world in which nothing ends by time."""
    still = {"provision": "multicast", "copies": "pool", "start": {"both": 1}, "bounds": None, "whims": None}
    return replace(draw_setting(Random(0)), **(still | changed)).controller().elastic


def verdicts(
    elastic: Elastic | None,
    looks: int,
    period_ns: int = MS,
    alone: bool = True,
    expiry_times_ns: Ends = Elastic.expiry_times_ns,
) -> list[bool]:
    """At so many looks of a world in which nothing happens."""
    still = StallDetector(None if elastic is None else Pending(elastic, expiry_times_ns))
    return [still.is_stalled(look * period_ns, look, alone) for look in range(looks)]


def test_nothing_that_changes_by_time_takes_a_few_looks_at_any_period() -> None:
    for period_ns in (1, MS, 10_000 * MS):
        assert verdicts(elastic_of(), 3 * LOOKS, period_ns).index(True) == 2 * LOOKS - 1


def test_other_events_that_are_due_may_change_it() -> None:
    assert not any(verdicts(elastic_of(), 3 * LOOKS, alone=False))


@pytest.mark.parametrize("known", [True, False])
def test_what_ends_is_waited_for_where_it_is_known(known: bool) -> None:
    ends_ns = [20 * MS, 3 * MS, PATIENCE_NS * 2] if known else None
    found = verdicts(elastic_of(), 60, expiry_times_ns=lambda elastic: ends_ns)
    assert found.index(True) == 20 + LOOKS if known else not any(found)


def test_a_scaler_that_does_not_say_until_when_its_answers_hold_has_an_hour() -> None:
    for elastic in (elastic_of(whims=lambda: Whims(Random(0))), None):
        assert verdicts(elastic, 5, PATIENCE_NS // 3) == [False, False, False, False, True]


def test_events_between_looks_begin_the_wait_anew() -> None:
    still = StallDetector()
    assert not still.is_stalled(5, 3, True)
    assert not still.is_stalled(5 + PATIENCE_NS, 4, True)  # for an hour, and no longer
    assert still.is_stalled(6 + PATIENCE_NS, 5, True)
    assert not still.is_stalled(7 + PATIENCE_NS, 7, True)  # something else was handled between
    assert not still.is_stalled(7 + 2 * PATIENCE_NS, 8, True)
    assert still.is_stalled(8 + 2 * PATIENCE_NS, 9, True)


def test_a_run_whose_requests_nobody_will_ever_serve_says_so_at_once() -> None:
    """Each of two models has one of the two GPUs, and lacks another for its other role. A look every ms."""
    words = (
        "system=blitz_multicast", "cluster=blitz_a_1x2", "models=zipf", "models.count=4",
        "models.shapes=llama3_8b", "system.instances.prefill_min=0", "system.instances.decode_min=0",
        "system.instances.monitor_period_ms=1", "trace=azure_conv_like", "trace.rate_per_s=20",
        "trace.limit=20",
        "out=unused",
    )  # fmt: skip
    prepared = prepare(load_config([*words], "simulate"))
    looks = Counter[type]()
    with pytest.raises(UserError) as told:
        execute(prepared, Counting(looks))
    sentence = str(told.value)
    assert sentence.startswith(
        "the simulation is stalled with 17 requests that can never be served, the first is request 1 "
    )
    assert "'llama3_8b#0000'" in sentence and "system.instances" in sentence and "\n" not in sentence
    assert looks[Woke] < 20_000, "not an hour of them, which is 3,600,000"


@dataclass(frozen=True)
class Counting:
    """A journal that counts events by type."""

    found: Counter[type]

    def write(self, now_ns: int, event: Event, actions: Sequence[Action]) -> None:
        self.found[type(event)] += 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("cluster=blitz_a_1x1", "system.instances.prefill_min=0", "system.instances.decode_min=0"),
            "system=blitz_multicast needs two instances, one per role, and cluster=blitz_a_1x1 holds 1: ",
        ),
        (("cluster=blitz_a_1x1",), "system=blitz_multicast needs two instances, one per role, and "),
        (
            ("cluster=blitz_a_1x4", "system.instances.size=full", "system.instances.decode_min=4"),
            "system=blitz_multicast keeps at least 5 instances and cluster=blitz_a_1x4 holds 4: ",
        ),
        (
            ("cluster=blitz_a_4x2", "model=qwen2_5_72b", "model.tp=4"),
            "system=blitz_multicast starts instances within one host or one NVLink domain, and "
            "qwen2_5_72b on 4 GPUs is ",
        ),
    ],
)
def test_instances_that_can_never_be_placed_are_refused_before_the_run(
    words: tuple[str, ...], told: str
) -> None:
    few = ("system=blitz_multicast", "trace=azure_conv_like", "trace.limit=20", "out=unused")
    with pytest.raises(UserError, match=re.escape(told)):
        prepare(load_config([*few, *words], "simulate"))
