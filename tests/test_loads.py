"""Loads under way: the state table cell by cell, and cold starts through the controller."""

import pytest

from policies.admission import AdmitAll
from policies.batching import ChunkedPrefill
from policies.dispatch import LeastOutstanding
from serving import invariants
from serving.actions import Action, Assign, Load, Run
from serving.controller import Controller
from serving.engine import EngineState
from serving.events import Arrived, Event, Loaded, LoadStopped, Lost, Opened
from serving.layers import LayerRange
from serving.loads import STOPPED, THERE, UNDER_WAY, Loads, replicas_of
from serving.replica import Replica
from serving.request import Request

CHAIN = Load(7, "m", (("host", 0), ("replica", 0), ("replica", 1)), True, True, "cold start")


def begun() -> Loads:
    loads = Loads()
    loads.begin(CHAIN)
    return loads


def in_state(state: str) -> Loads:
    """Stop 1 in this state, stop 2 still under way."""
    loads = begun()
    loads.loaded(Loaded(7, 1, 2, False))
    if state == THERE:
        loads.loaded(Loaded(7, 1, 4, True))
    elif state == STOPPED:
        loads.ended_early(LoadStopped(7, 1, 2, "asked to"))
    assert loads.in_flight[7].states[1] == state
    return loads


CELLS = {
    (UNDER_WAY, "loaded"): UNDER_WAY,
    (UNDER_WAY, "whole"): THERE,
    (UNDER_WAY, "stopped"): STOPPED,
    (THERE, "loaded"): None,
    (THERE, "whole"): None,
    (THERE, "stopped"): None,
    (STOPPED, "loaded"): None,
    (STOPPED, "whole"): None,
    (STOPPED, "stopped"): None,
}


@pytest.mark.parametrize(("state", "event"), CELLS)
def test_every_state_answers_every_event(state: str, event: str) -> None:
    loads = in_state(state)

    def tell() -> None:
        if event == "stopped":
            assert loads.ended_early(LoadStopped(7, 1, 3, "asked to")) == ("replica", 0)
        else:
            there = loads.loaded(Loaded(7, 1, 3, event == "whole"))
            assert there == (("replica", 0) if event == "whole" else None)

    after = CELLS[state, event]
    if after is None:
        with pytest.raises(AssertionError, match="not under way"):
            tell()
    else:
        tell()
        assert loads.in_flight[7].states == [THERE, after, UNDER_WAY]
        assert loads.in_flight[7].layers == [0, 3, 0]


def test_a_load_is_forgotten_when_no_stop_of_it_is_under_way() -> None:
    loads = begun()
    loads.loaded(Loaded(7, 1, 4, True))
    loads.ended_early(LoadStopped(7, 2, 0, "link down"))
    assert loads.in_flight == {} and (loads.done, loads.stopped) == (1, 1)
    with pytest.raises(AssertionError, match="load 7, which is not under way"):
        loads.loaded(Loaded(7, 2, 4, True))


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Loaded(8, 1, 1, False), "load 8, which is not under way"),
        (Loaded(7, 0, 1, False), "at stop 0"),
        (Loaded(7, 3, 1, False), "at stop 3"),
    ],
)
def test_reports_of_nothing_are_refused(event: Loaded, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        begun().loaded(event)


def test_layers_that_were_whole_stay_whole() -> None:
    loads = begun()
    loads.loaded(Loaded(7, 1, 3, False))
    with pytest.raises(AssertionError, match="a layer that was whole is not"):
        loads.loaded(Loaded(7, 1, 2, False))


@pytest.mark.parametrize("stops", [(), (("host", 0),), (("host", 0), ("host", 0))])
def test_a_load_needs_a_source_and_targets(stops: tuple[tuple[str, int], ...]) -> None:
    with pytest.raises(AssertionError, match="different stops"):
        Loads().begin(Load(1, "m", stops, False, False, ""))
    with pytest.raises(AssertionError, match="under way already"):
        begun().begin(CHAIN)


def test_replicas_of_loads_are_their_targets() -> None:
    back = Load(1, "m", (("replica", 5), ("host", 0)), False, False, "")
    assert replicas_of([CHAIN, back]) == {0, 1}


class World:
    """A controller with two cold replicas and a warm one, told facts and asked for invariants."""

    def __init__(self) -> None:
        replicas = [Replica(id, "m", LayerRange(0, 4), (id,), 64, 4) for id in range(3)]
        self.controller = Controller(
            replicas, LeastOutstanding(), lambda replica: ChunkedPrefill(8, 64), AdmitAll(), starts=(CHAIN,)
        )
        self.now_ns = 0

    def tell(self, event: Event) -> list[Action]:
        self.now_ns += 1
        actions = self.controller.handle(self.now_ns, event)
        invariants.check(self.controller)
        return actions

    def arrive(self, request: int) -> list[Action]:
        return self.tell(Arrived(Request(request, self.now_ns, 8, 4, "m")))


def test_a_cold_replica_queues_until_its_parameters_are_there() -> None:
    world = World()
    assert world.tell(Opened()) == [CHAIN]
    assert [type(action) for action in world.arrive(0)] == [Assign]  # replica 0 is cold
    assert world.tell(Loaded(7, 1, 2, False)) == []
    (run,) = world.tell(Loaded(7, 1, 4, True))
    assert isinstance(run, Run) and run.replica == 0 and run.chunks == ((0, 0, 8),)
    assert world.controller.engines[1].state is EngineState.LOADING
    assert world.tell(Loaded(7, 2, 4, True)) == []
    assert world.controller.engines[1].state is EngineState.IDLE
    assert [type(action) for action in world.arrive(1)] == [Assign, Run]


def test_a_replica_lost_while_it_loads_fails_who_waited_and_stays_lost() -> None:
    world = World()
    world.tell(Opened())
    world.arrive(0)
    world.tell(Lost(0, "host gone"))
    assert world.controller.failed == 1
    assert world.tell(Loaded(7, 1, 4, True)) == []
    assert world.controller.engines[0].state is EngineState.LOST
