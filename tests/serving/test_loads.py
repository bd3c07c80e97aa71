"""Loads under way, and cold starts through the controller."""

import pytest

from policies.admission import AdmitAll
from policies.batching import ChunkedPrefill
from policies.dispatch import LeastOutstanding
from serving.composition import compose
from serving.engine.progress import EngineState
from serving.parameters.loads import Loads, replicas_of
from serving.record import invariants
from serving.vocabulary.actions import Action, Assign, Endpoint, Load, Run, Shard
from serving.vocabulary.events import Arrived, Event, Loaded, LoadStopped, Lost, Opened
from serving.vocabulary.layers import LayerRange, Part
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request
from tests.worlds.refusals import refuses

SHARDS = (Shard(-1, 0, 0.5, 1e10), Shard(-1, 1, 0.5, 1e10))
PAIR = Load(
    7, "m", (("host", 0),), (("replica", 0), ("replica", 1)), SHARDS, True, True, "cold start", False, (0, 4)
)

WHOLE = Part("m", 0, 4)


def begun() -> Loads:
    loads = Loads()
    loads.begin(PAIR)
    return loads


def test_a_load_is_forgotten_when_no_target_of_it_is_under_way() -> None:
    loads = begun()
    loads.loaded(Loaded(7, 0, 4, True))
    loads.ended_early(LoadStopped(7, 1, 0, "link down"))
    assert loads.in_flight == {} and (loads.done, loads.stopped) == (1, 1)
    refuses(AssertionError, "load 7, which is not under way", loads.loaded, Loaded(7, 1, 4, True))


def test_sources_are_busy_as_long_as_a_target_of_theirs_is_under_way() -> None:
    loads = begun()
    busy = loads.sending()
    assert busy == {("host", 0): 1}
    loads.begin(
        Load(8, "m", (("replica", 0), ("host", 0)), (("replica", 5),), (), False, False, "", layers=(0, 4))
    )
    assert busy == {("host", 0): 2, ("replica", 0): 1}
    loads.loaded(Loaded(7, 0, 4, True))
    assert busy == {("host", 0): 2, ("replica", 0): 1}
    loads.loaded(Loaded(7, 1, 4, True))
    assert busy == {("host", 0): 1, ("replica", 0): 1}, "load 8 reads the host too"
    loads.ended_early(LoadStopped(8, 0, 0, "asked to"))
    assert busy == {}


def test_the_load_to_a_replica_is_known_until_it_ends_there() -> None:
    loads = begun()
    flight = loads.in_flight[7]
    assert loads.to(0) is loads.to(1) is flight and loads.to(2) is None
    with pytest.raises(AssertionError, match="load 8 is to replica 1, as is load 7"):
        loads.begin(Load(8, "m", (("host", 1),), (("replica", 1),), (), False, False, "", layers=(0, 4)))
    loads.loaded(Loaded(7, 0, 4, True))
    assert loads.to(0) is None and loads.to(1) is flight
    loads.ended_early(LoadStopped(7, 1, 2, "asked to"))
    assert loads.to(1) is None


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Loaded(8, 1, 1, False), "load 8, which is not under way"),
        (Loaded(7, -1, 1, False), "at target -1"),
        (Loaded(7, 2, 1, False), "at target 2"),
    ],
)
def test_reports_of_nothing_are_refused(event: Loaded, words: str) -> None:
    refuses(AssertionError, words, begun().loaded, event)


def test_layers_that_were_whole_stay_whole() -> None:
    loads = begun()
    loads.loaded(Loaded(7, 1, 3, False))
    refuses(AssertionError, "a layer that was whole is not", loads.loaded, Loaded(7, 1, 2, False))


@pytest.mark.parametrize(
    ("sources", "targets"),
    [
        ((), (("host", 0),)),
        ((("host", 0),), ()),
        ((("host", 0),), (("host", 0),)),
        ((("ssd", 0),) * 2, (("host", 0),)),
    ],
)
def test_a_load_needs_sources_and_targets(
    sources: tuple[Endpoint, ...], targets: tuple[Endpoint, ...]
) -> None:
    with pytest.raises(AssertionError, match="load 1 needs sources and targets, each once"):
        Loads().begin(Load(1, "m", sources, targets, (), False, False, "", layers=(0, 4)))
    refuses(AssertionError, "under way already", begun().begin, PAIR)


def test_replicas_of_loads_are_their_targets() -> None:
    back = Load(1, "m", (("replica", 5),), (("host", 0),), (), False, False, "", layers=(0, 4))
    assert replicas_of([PAIR, back]) == {0, 1}


class World:
    """A controller with two cold replicas and a warm one, told facts and asked for invariants."""

    def __init__(self) -> None:
        replicas = [
            Replica(id=id, model="m", layers=LayerRange(0, 4), gpus=(id,), kv_blocks=64, block_tokens=4)
            for id in range(3)
        ]
        self.controller = compose(
            replicas,
            LeastOutstanding(),
            lambda replica: ChunkedPrefill(8, 64),
            admission=AdmitAll(),
            starts=(PAIR,),
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
    assert world.tell(Opened()) == [PAIR]
    assert [type(action) for action in world.arrive(0)] == [Assign]  # replica 0 is cold
    assert world.tell(Loaded(7, 0, 2, False)) == []
    (run,) = world.tell(Loaded(7, 0, 4, True))
    assert isinstance(run, Run) and run.replica == 0 and run.chunks == ((0, 0, 8),)
    assert world.controller.engines[1].state is EngineState.LOADING
    assert world.tell(Loaded(7, 1, 4, True)) == []
    assert world.controller.engines[1].state is EngineState.IDLE
    assert [type(action) for action in world.arrive(1)] == [Assign, Run]


def test_a_replica_lost_while_it_loads_fails_who_waited_and_stays_lost() -> None:
    world = World()
    world.tell(Opened())
    world.arrive(0)
    world.tell(Lost(0, "host gone"))
    assert world.controller.failed == 1
    assert world.tell(Loaded(7, 0, 4, True)) == []
    assert world.controller.engines[0].state is EngineState.LOST
