"""Loads, losses and GPUs: what becomes of instances when what they need, or they themselves, go."""

from collections.abc import Callable

import pytest

from serving.engine.layer_pass import LayerPass
from serving.record.invariants import InvariantError, check
from serving.vocabulary.actions import Action, AllocateGpus, Fail, Load, ReleaseGpus, Send, StopLoad
from serving.vocabulary.events import Loaded, LoadStopped, Lost
from tests.worlds.elastic_world import MS, SIZE_BYTES, Setting, Told, bare
from tests.worlds.told_systems import BOTH, WHOLE, both, load, place, prompt, wait


def stopped(told: Told, number: int, target: int = 0) -> list[Action]:
    return told.fact(LoadStopped(number, target, 0, "stopped"))


def test_a_load_that_stops_gives_its_gpus_back_and_is_asked_for_again() -> None:
    told = both()
    told.arrive(0)
    assert stopped(told, 0) == [ReleaseGpus(0, "")]
    assert told.states == {}
    assert wait(told, 1) == [place(0), load(1, ("host", 0), 0)]


def test_a_replica_lost_while_it_loads_stops_its_load_and_others_gpus_are_used() -> None:
    told = both()
    told.arrive(0)
    assert told.lose(0)[:1] == [StopLoad(0, "")]
    assert stopped(told, 0) == []
    assert wait(told, 1) == [place(1), load(1, ("host", 0), 1)]
    assert told.loaded(1)[-1] == prompt(1, 0)


def test_what_was_loaded_in_the_moment_of_the_loss_is_of_no_use() -> None:
    told = both()
    told.arrive(0), told.lose(0)
    assert told.loaded(0) == []
    assert told.states == {}


def test_a_load_from_a_lost_replica_stops_and_what_it_was_for_is_given_up() -> None:
    told = both(start=1, least=1, provision="one_to_one", prefill_tokens_per_s=20.0)
    told.arrive(0, 10), told.arrive(1, 10)
    loads = [one for one in wait(told, 1) if isinstance(one, Load)]
    assert {one.sources for one in loads} == {(("replica", 0),)}
    lost = told.lose(0)
    assert Fail(0, "") in lost
    assert [one.load for one in lost if isinstance(one, StopLoad)] == [one.load for one in loads]
    for one in loads:
        assert stopped(told, one.load)[0] == ReleaseGpus(one.targets[0][1], "")


def test_the_last_copy_that_is_lost_comes_from_an_ssd() -> None:
    told = both(start=1, least=1)
    told.arrive(0)
    reload = Load(0, "m", (("ssd", 0),), (("host", 0),), (), False, False, "", layers=WHOLE.layers)
    assert reload in told.lose(0)
    assert wait(told, 1) != []


def test_a_copy_that_was_coming_from_a_lost_replica_comes_from_elsewhere() -> None:
    told = both()
    told.arrive(0), told.loaded(0), told.ran(0), told.ran(0, 0, steps=9)
    (back,) = wait(told, 5)
    assert back.sources == (("replica", 0),)
    again = Load(2, "m", (("ssd", 0),), (("host", 0),), (), False, False, "", layers=WHOLE.layers)
    assert told.lose(0)[:2] == [StopLoad(1, ""), again]
    assert stopped(told, 1) == []  # the copy that comes now is not given up with it
    assert told.deployment.copies.pool.places(WHOLE).coming == (0,)
    told.loaded(2)
    assert told.deployment.copies.pool.places(WHOLE).domains == (0,)


def test_a_reload_that_stops_is_begun_again() -> None:
    told = both()
    told.arrive(0), told.loaded(0), told.ran(0), told.ran(0, 0, steps=9)
    assert [one.load for one in wait(told, 5)] == [1]
    retry = stopped(told, 1)
    assert [one.targets for one in retry if isinstance(one, Load)] == [(("host", 0),)]


def test_a_decode_instance_that_drains_goes_when_what_was_sent_to_it_does_not_come() -> None:
    told = Told(Setting(start={"prefill": 1, "decode": 2}, copies="ttl"))
    told.arrive(0)
    assert isinstance(told.ran(0)[0], Send)
    actions: list[Action] = []
    told.deployment.drains.drain(told.now_ns, 1, actions)
    assert actions == []
    assert ReleaseGpus(1, "") in told.lose(0)
    assert told.states == {2: ("decode", "serving")}


def test_a_lost_replica_that_had_left_is_not_revived_and_its_gpus_serve_on() -> None:
    told = both(start=1, copies="ttl", park_ns=10_000 * MS)
    told.arrive(0), told.ran(0), told.ran(0, 0, steps=9)
    assert wait(told, 5) == [ReleaseGpus(0, "")]
    assert told.lose(0) == []
    assert told.arrive(1)[0] == place(0)


def test_a_lost_host_takes_copies_loads_and_seats_and_the_pool_makes_another_copy() -> None:
    told = both()
    told.arrive(0)
    told.fact(Lost(0, "host gone"))
    actions: list[Action] = []
    told.deployment.lost_host(told.now_ns, 0, actions)
    reload = Load(1, "m", (("ssd", 1),), (("host", 1),), (), False, False, "", layers=WHOLE.layers)
    assert bare(actions) == [StopLoad(0, ""), reload]
    assert stopped(told, 0) == []
    told.loaded(1)
    assert wait(told, 1) == [place(2), load(2, ("host", 1), 2)]


def test_a_host_is_not_lost_before_its_replicas() -> None:
    told = both(start=1)
    with pytest.raises(AssertionError, match="still has the replicas"):
        told.deployment.lost_host(0, 0, [])


def test_a_source_does_not_leave_while_it_is_read() -> None:
    told = both(start=1, provision="one_to_one", prefill_tokens_per_s=20.0, copies="ttl")
    told.arrive(0, 16, 4)
    (read,) = [one for one in wait(told, 1) if isinstance(one, Load)]
    assert read.sources == (("replica", 0),)
    told.ran(0, 0)
    actions: list[Action] = []
    told.deployment.drains.drain(told.now_ns, 0, actions)
    assert actions == [] and told.states[0] == ("both", "draining")
    assert told.loaded(read.load) == [ReleaseGpus(0, "")]


def test_the_last_copy_does_not_leave_where_no_host_has_room_for_it() -> None:
    """Of two hosts with memory for one model each one is lost, and the other has that of b."""
    room = Setting(models={"a": 1, "b": 1}, start={"both": 1}, host_gb=SIZE_BYTES / 1e9)
    told, actions = Told(room), list[Action]()
    told.deployment.drains.drain(1, 1, actions)
    (kept,) = [one for one in actions if isinstance(one, Load)]
    assert kept.targets == (("host", 0),) and told.loaded(kept.load) == [ReleaseGpus(1, "")]
    told.deployment.lost_host(told.now_ns, 1, actions)
    actions.clear()
    told.deployment.drains.drain(told.now_ns, 0, actions)
    assert actions == [] and told.states == {0: ("both", "draining")}


def test_a_pass_begins_behind_a_load_when_the_rest_takes_no_longer_than_it() -> None:
    """A pass takes 200 ms, a layer 200 ms to come: with three of four layers there one is still to come."""
    told = both(provision="pipelined", copies="ttl", pass_ns=200 * MS)
    told.arrive(0)
    assert told.fact(Loaded(0, 0, 2, False), 400 * MS) == []
    assert told.states == {0: ("both", "loading")}
    assert told.fact(Loaded(0, 0, 3, False), 600 * MS)[-1] == prompt(0, 0)


def test_history_says_what_became_of_every_decision() -> None:
    told = both()
    told.arrive(0), told.loaded(0), told.ran(0), told.ran(0, 0, steps=9), wait(told, 5), told.loaded(1)
    assert [(one.act, one.replica) for one in told.deployment.log.events] == [
        ("load", 0), ("ready", 0), ("drain", 0), ("released", 0),
    ]  # fmt: skip
    assert all(one.reason for one in told.deployment.log.events)


def test_a_new_place_is_cold_and_has_its_model() -> None:
    told = Told(Setting(models={"a": 1, "b": 2}, start=BOTH))
    (placed,) = [one for one in told.arrive(0, model="b") if isinstance(one, AllocateGpus)]
    assert (placed.model, placed.gpus, placed.warm) == ("b", (2, 3), False)  # host 1 has its copy


def overlap_gpus(told: Told) -> None:
    live = told.deployment.instances.live
    live[1].replica = live[0].replica


def load_what_serves(told: Told) -> None:
    told.deployment.instances.live[0].state = "loading"


def forget_the_last_copy(told: Told) -> None:
    told.deployment.copies.pool._replicas[WHOLE].clear()


def forget_its_layers(told: Told) -> None:
    told.deployment.residency.clear(("replica", 1))


def run_layers_that_are_not_there(told: Told) -> None:
    told.deployment.residency.begin(("replica", 1), WHOLE)
    told.deployment.residency.came(("replica", 1), WHOLE, 2, False)
    told.controller.engines[1].layer_pass = LayerPass(((0, 0, 4),), (2, 3), "test")


@pytest.mark.parametrize(
    ("damage", "number"),
    [
        (overlap_gpus, 8),
        (load_what_serves, 3),
        (forget_the_last_copy, 5),
        (forget_its_layers, 3),
        (run_layers_that_are_not_there, 3),
    ],
)
def test_a_broken_invariant_of_instances_is_named(damage: Callable[[Told], None], number: int) -> None:
    told = both(start=2)
    check(told.controller)
    damage(told)
    with pytest.raises(InvariantError, match=f"^invariant {number}: "):
        check(told.controller)
