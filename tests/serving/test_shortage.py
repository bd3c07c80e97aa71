"""More models than GPUs: what a look of the load monitor asks, and that asking less decides the same."""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from policies.scaling.load_monitor import LoadMonitor, load_monitor
from serving.elastic.looks import Looks
from serving.elastic.shortage import Shortage
from serving.elastic.standing_answers import LastAnswer
from serving.protocols.provisioning import MissingInstances
from serving.protocols.scaling import ScaleDecision, Scaler, ScalingView
from serving.vocabulary.events import Event
from serving.vocabulary.request import Request
from tests.worlds.elastic_world import MS, Setting, StepWorld
from tests.worlds.fresh_looks import check_looks

END_NS = 5_000 * MS  # some of these worlds never come to rest: models hold each other's GPUs


class AskedAlways:
    """A load monitor that says neither until which load nor until when its answer stands."""

    def __init__(self, monitor: LoadMonitor) -> None:
        self._monitor = monitor
        self.asked = 0

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        self.asked += 1
        return self._monitor.scale(view)


class Counted(AskedAlways):
    """The same monitor, with its promises."""

    def __init__(self, monitor: LoadMonitor) -> None:
        super().__init__(monitor)
        self.no_change_bounds = monitor.no_change_bounds
        self.no_change_until_ns = monitor.no_change_until_ns


def world_of(scaler: Callable[[], Scaler], models: int, seed: int, split: bool = True) -> StepWorld:
    random = Random(seed)
    names = [f"m{index:03d}" for index in range(models)]
    bounds = {"prefill": (0, 2), "decode": (0, 2)} if split else {"both": (0, 3)}
    setting = Setting(
        models={name: 1 + random.randrange(2) for name in names},
        start=dict.fromkeys(bounds, 0),  # type: ignore[arg-type]
        bounds=bounds,  # type: ignore[arg-type]
        copies="ttl",
        ways=("cancel_drain", "revive") if seed % 2 else (),
        park_ns=50 * MS if seed % 3 else 0,
        coalesce=False,
        whims=scaler,
    )
    spans = {"step": 20 * MS, "load": 300 * MS, "send": 5 * MS}
    world = StepWorld(setting, lambda what: 1 + random.randrange(2 * spans.get(what, MS)))
    for number in range(120):
        at_ns = random.randrange(2_000 * MS)
        request = Request(number, at_ns, 1 + random.randrange(8), 6, random.choice(names))
        world.arrive(request, 1 + random.randrange(6))
    if seed % 4 == 0:
        world.lose(1_000 * MS, random.randrange(4))
    return world


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_a_scaler_asked_every_period_decides_the_same(seed: int, split: bool) -> None:
    worlds = [
        # Type: ignore[misc]
        world_of(lambda kind=kind: kind(load_monitor(ways=(), prescale_from=0)), 9, seed, split)
        for kind in (AskedAlways, Counted)
    ]
    for world in worlds:
        world.run(until_ns=END_NS)
    always, promised = worlds
    assert always.ended["finished"] > 3
    assert promised.actions == always.actions
    assert (
        promised.controller.elastic.deployment.log.events == always.controller.elastic.deployment.log.events
    )


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_who_has_no_turn_would_change_nothing(seed: int, split: bool) -> None:
    """After each event; a request leaves now and then while it waits."""
    world = world_of(lambda: load_monitor(ways=(), prescale_from=0), 9, seed, split)
    random, tell = Random(seed), world.tell
    checked = Counter[str]()

    def told(event: Event) -> None:
        tell(event)
        check_looks(world.controller)
        checked.update(type(event).__name__ for _ in range(1))

    world.tell = told  # type: ignore[method-assign]
    for number in random.sample(range(120), 40 if split else 0):
        world.leave(random.randrange(3_000 * MS), number)
    world.run(until_ns=END_NS)
    assert checked["Woke"] > 20 and world.ended["finished"] > 3
    assert not split or checked["Disconnected"] > 3


def times_asked(models: int, kind: type[AskedAlways]) -> int:
    scalers = list[AskedAlways]()

    def scaler() -> AskedAlways:
        scalers.append(kind(load_monitor(ways=(), prescale_from=0)))
        return scalers[-1]

    world_of(scaler, models, seed=1).run(until_ns=END_NS)
    return scalers[0].asked


def test_how_often_scalers_are_asked_does_not_grow_with_the_models_that_wait() -> None:
    """Four GPUs and 50 looks; at 100 models nearly all of the 120 requests wait for GPUs."""
    assert times_asked(100, AskedAlways) > 2_000
    assert times_asked(100, Counted) < 2 * 120 + 50, "at arrivals, and about those that have an instance"


def all_turns(looks: Looks, shortage: Shortage, left: list[int], fit: Callable[[str], bool]) -> list[str]:
    """Models in turn; a starved one takes of what is ``left``, and one that can get GPUs is one that fits."""
    got = []
    for model in looks.in_turn(0, lambda: left[0] > 0, fit, looks.note):
        got.append(model)
        left[0] -= shortage.wake(model)
    return got


def test_the_starved_have_turns_by_name_between_the_others_while_there_is_something() -> None:
    shortage = Shortage()
    looks = Looks(shortage, set())
    for name in ("d", "a", "e"):
        shortage.starve(name)
    for name in ("b", "c", "f"):
        looks.add(name)
    # Model a is too large for what is free
    assert all_turns(looks, shortage, [2], lambda model: model != "a") == ["b", "c", "d", "e", "f"]
    assert shortage.starved == ["a"]
    assert all_turns(looks, shortage, [0], lambda model: True) == []
    assert not shortage.wake("d")


def test_a_model_has_a_turn_once_it_was_touched_or_its_answer_has_ended() -> None:
    shortage = Shortage()
    looks = Looks(shortage, set())
    for name in ("a", "b", "c"):
        looks.add(name)
    turns = []
    for model in looks.in_turn(10, lambda: False, lambda model: False, looks.note):
        turns.append(model)
        looks.answered(model, LastAnswer((0, 0, 0), 0, {"a": 20, "b": 30, "c": 40}[model], model == "c"))
        if model == "b":
            looks.touched |= {"a", "c", "d"}  # a: its turn is over; d: not looked at
    assert turns == ["a", "b", "c"]
    assert list(looks.in_turn(11, lambda: False, lambda model: False, looks.note)) == ["a"]
    assert list(looks.in_turn(30, lambda: True, lambda model: True, looks.note)) == ["a", "b", "c"]
    looks.answered("b", LastAnswer((0, 0, 0), 0, 50, False))
    looks.remove("c")
    assert list(looks.in_turn(50, lambda: True, lambda model: True, looks.note)) == ["b"]


def test_a_shortage_is_news_once_per_count() -> None:
    short = ScaleDecision(act="shortage", model="m", role="prefill", count=1, instances=(), reason="why")
    load = ScaleDecision(act="load", model="m", role="prefill", count=1, instances=(), reason="why")
    shortage = Shortage()
    news = [shortage.is_new_shortage(short, MissingInstances(count, "no_gpu")) for count in (1, 1, 2, 2, 1)]
    assert news == [True, False, True, False, True]
    shortage.update("m", (short,))
    assert not shortage.is_new_shortage(short, MissingInstances(1, "no_gpu"))
    shortage.update("m", ())
    assert shortage.is_new_shortage(short, MissingInstances(1, "no_gpu"))
    assert shortage.obstacle_of_loads("m") is None and shortage.is_new_shortage(
        load, MissingInstances(1, "no_copy")
    )
    assert shortage.obstacle_of_loads("m") == "no_copy"
    shortage.ended(load)
    assert shortage.obstacle_of_loads("m") is None
