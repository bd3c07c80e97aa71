"""The driver's world over workers that only write down what they are told: events in, messages out."""

from realexec.wire.messages import (
    DropKV,
    Fetch,
    Fetched,
    Forget,
    Hold,
    Join,
    Locate,
    Located,
    PlacePart,
    Pull,
    Pulled,
    RunSteps,
    StepsDone,
    StopFetch,
    StopPull,
    StopSteps,
    TakeOut,
)
from realexec.world.loads import units_of
from realexec.world.models import Models
from serving.vocabulary.actions import (
    AllocateGpus,
    Assign,
    Detach,
    Fail,
    Interrupt,
    JoinBatch,
    Load,
    Migrate,
    Preempt,
    Reject,
    ReleaseGpus,
    Run,
    Send,
    StopLoad,
    StopSend,
    SwitchRole,
    Wake,
)
from serving.vocabulary.events import Loaded, LoadStopped, Lost, LostHost, Ran, Sent
from serving.vocabulary.layers import Part
from tests.worlds.told_workers import ToldWorld

WHOLE = PlacePart(0, (0, 3))
HELD = Hold(7, (1, 2, 3), (), 5)


def place(replica: int, warm: bool = False) -> AllocateGpus:
    return AllocateGpus(replica, "tiny", (replica,), "both", warm, "grow", (0, 3))


def load(number: int, source: int, target: int, every_layer: bool = True) -> Load:
    ends = (("replica", source),), (("replica", target),)
    return Load(number, "tiny", *ends, (), every_layer, False, "grow", False, (0, 3))


def pull(told: ToldWorld, slot: int, number: int, unit: int, cause: str = "") -> list:
    before = len(told.pool.log)
    told.world.loads.pulled(slot, Pulled(number, unit, 100, cause))
    return list(told.sent_since(before))


def test_a_request_is_handed_over_with_its_kv() -> None:
    told = ToldWorld()
    told.arrive(7)
    run = Run(0, 0, ((7, 0, 3),), True, 1, True, "prefill", True)
    assert told.does(Assign(7, 0, "head"), run) == [
        (0, HELD),
        (0, RunSteps(0, ((7, 0, 3),), True, 1, True, True, None)),
    ]
    told.tracker.ran(
        0, StepsDone(epoch=0, started_ns=5, ends_ns=(9,), tokens={7: (42,)}, finished=(), running=False), 0
    )
    done = Hold(7, (1, 2, 3), (42,), 4)
    assert told.does(Send(3, "kv", (7,), 0, 1, 64, "least demand")) == [
        (1, done),
        (0, Locate(3, "kv", (7,), None, ())),
    ]
    told.world.sends.located(Located(3, ("there",)))
    assert told.pool.log[-1] == (1, Fetch(3, "kv", 0, ("there",)))
    told.world.sends.fetched(Fetched(3, 64, ""))
    assert told.facts() == [Sent(3, 64, "")]
    assert told.does(JoinBatch(1, (7,), "here")) == [(0, Forget(7)), (1, Join((7,), ((42,),)))]
    assert told.world.counts.handoffs == 1 and told.world.counts.migrations == 0


def test_what_a_request_is_told_at_its_end() -> None:
    told = ToldWorld()
    for number in (7, 8, 9):
        told.arrive(number)
    told.does(Assign(7, 0, "head"), Assign(8, 1, "head"), Send(1, "kv", (8,), 1, 0, 4, "x"))
    assert told.does(Preempt(0, 7, "full")) == [(0, DropKV(7))]
    assert told.does(Fail(8, "gone"), Reject(9, "full")) == [(1, Forget(8)), (0, Forget(8))]
    assert told.does(Assign(7, 1, "its last layers run there")) == [(1, HELD)]
    told.tracker.ran(
        1, StepsDone(epoch=0, started_ns=5, ends_ns=(9,), tokens={7: (42,)}, finished=(), running=False), 0
    )
    assert told.does(Assign(7, 0, "again")) == [(1, Forget(7)), (0, Hold(7, (1, 2, 3), (42,), 4))]
    assert (told.tracker.failed, told.tracker.refused, told.tracker.preemptions) == (1, 1, 1)


def test_a_chain_forwards_unit_by_unit() -> None:
    """Replica 0 feeds 2, which feeds 3: each unit goes on when it is whole, two are told ahead."""
    told = ToldWorld()
    assert told.does(place(2), place(3)) == [(2, WHOLE), (3, WHOLE)]
    assert told.does(load(0, 0, 2)) == [(2, Pull(0, unit, ("replica", 0), "replica")) for unit in (0, 1)]
    assert told.does(load(1, 2, 3)) == [], "its source has nothing yet"
    assert pull(told, 2, 0, 0) == [
        (2, Pull(0, 2, ("replica", 0), "replica")),
        (3, Pull(load=1, unit=0, source=("replica", 2), place="replica", model=0, layers=(0, 3))),
    ]
    assert told.facts() == [], "the embedding is no layer"
    pull(told, 2, 0, 1)
    pull(told, 3, 1, 0)
    assert pull(told, 3, 1, 1) == [], "layer 1 is not whole at its source"
    assert told.facts() == [Loaded(0, 0, 1, False, 0), Loaded(1, 0, 1, False, 0)]
    for unit in (2, 3, 4):
        pull(told, 2, 0, unit)
    assert told.facts()[-1] == Loaded(0, 0, 3, True, 0)
    assert told.world.loads.is_full(2) and told.world.loads.layers_there(3) == 1
    assert told.world.loads.from_loading == 2 and told.world.loads.loads == 1


def test_only_the_end_is_told_unless_layers_are_asked_for() -> None:
    told = ToldWorld()
    told.does(place(2), load(0, 0, 2, every_layer=False))
    for unit in range(5):
        assert told.facts() == []
        pull(told, 2, 0, unit)
    assert told.facts() == [Loaded(0, 0, 3, True, 0)]


def test_a_load_whose_source_dies_stops_with_what_is_whole_and_its_followers_with_it() -> None:
    told = ToldWorld()
    told.does(place(2), place(3), load(0, 0, 2), load(1, 2, 3))
    for unit in (0, 1):
        pull(told, 2, 0, unit)
    told.facts()
    before = len(told.pool.log)
    told.world.lose(0, "killed", has_hosts=True)
    assert told.facts() == [
        Lost(0, "killed"),
        LostHost(0, "killed"),
        LoadStopped(0, 0, 1, "killed", 0),
        LoadStopped(1, 0, 0, "load 0 to its source stopped: killed", 0),
    ]
    assert told.sent_since(before) == [(2, StopPull(0)), (3, StopPull(1))]
    assert pull(told, 2, 0, 2) == [] and told.facts() == [], "what comes late is of no load"
    assert told.does(load(2, 0, 2)) == []
    assert told.facts() == [LoadStopped(2, 0, 0, "killed", 0)]


def test_a_pull_that_fails_stops_the_load_and_a_stop_keeps_what_is_whole() -> None:
    told = ToldWorld()
    told.does(place(2), place(3), load(0, 0, 2), load(1, 1, 3))
    assert pull(told, 2, 0, 0, "the link was closed") == [(2, StopPull(0))]
    pull(told, 3, 1, 0)
    pull(told, 3, 1, 1)
    assert told.does(StopLoad(1, "no longer")) == [(3, StopPull(1))]
    assert told.facts() == [
        LoadStopped(0, 0, 0, "the link was closed", 0),
        Loaded(1, 0, 1, False, 0),
        LoadStopped(1, 0, 1, "no longer", 0),
    ]


def test_stores_and_hosts_have_everything_and_a_new_replica_nothing() -> None:
    told = ToldWorld()
    told.does(place(2), place(3))
    for number, source in enumerate((("ssd", 2), ("host", 2))):
        action = Load(number, "tiny", (source,), (("replica", 2 + number),), (), False, True, "cold")
        assert told.does(action)[0] == (2 + number, Pull(number, 0, source, "replica"))
    to_host = Load(5, "tiny", (("replica", 0),), (("host", 3),), (), False, False, "cache")
    assert told.does(to_host)[0] == (3, Pull(5, 0, ("replica", 0), "host"))
    assert told.does(load(6, 3, 2)) == [], "its source is being loaded"
    told.does(StopLoad(1, "x"))
    told.facts()
    told.does(load(7, 3, 2))
    assert told.facts() == [LoadStopped(7, 0, 0, "replica 3, its source, has no parameters", 0)]


def test_units_are_the_embedding_the_layers_and_the_head() -> None:
    assert units_of(0, 3, 3, False) == [0, 1, 2, 3, 4]
    assert units_of(0, 3, 3, True) == [1, 2, 3, 0, 4]
    assert units_of(1, 2, 3, False) == [2]
    assert units_of(2, 3, 3, False) == [3, 4]


def test_a_live_pass_is_counted_by_the_layers_that_are_there() -> None:
    told = ToldWorld()
    told.arrive(7)
    told.does(place(2), load(0, 0, 2))
    for unit in (0, 1):
        pull(told, 2, 0, unit)
    one = Run(2, 0, ((7, 0, 3),), False, 1, True, "live", True, (0, 1))
    rest = Run(0, 0, ((7, 0, 3),), False, 1, True, "live", True, (1, 3))
    assert told.does(one) == [(2, HELD), (2, RunSteps(0, ((7, 0, 3),), False, 1, True, True, (0, 1)))]
    assert told.does(Send(4, "activations", (7,), 2, 0, 8, "pulled"))[-1] == (
        2,
        Locate(4, "activations", (7,), None, ()),
    )
    told.does(rest)
    assert told.world.counts.live_passes == 1 and told.world.counts.live_layer_counts == {1}


def test_a_migration_moves_in_stages_and_an_abort_leaves_nothing() -> None:
    told = ToldWorld()
    told.arrive(7)
    told.does(Assign(7, 0, "head"))
    told.does(Migrate(7, 0, 1, "begun", "freer"))
    stage = Send(0, "kv", (7,), 0, 1, 64, "stage 0", None, ((0, 2),))
    assert told.does(stage)[-1] == (0, Locate(0, "kv", (7,), None, ((0, 2),)))
    assert told.does(Detach(0, 7, "last")) == [(0, TakeOut(7))]
    aborted = Migrate(7, 0, 1, "aborted", "the destination refuses")
    assert told.does(StopSend(0, "aborted"), aborted) == [(1, Forget(7))]
    assert told.facts() == [Sent(0, 0, "aborted")]
    assert told.does(JoinBatch(0, (7,), "stays"))[-1] == (0, Join((7,), ((),)))
    told.does(Send(1, "kv", (7,), 0, 1, 64, "stage 0"), Migrate(7, 0, 1, "committed", "1 stages"))
    assert told.does(JoinBatch(1, (7,), "came"))[0] == (0, Forget(7))
    assert (told.world.counts.migrations, told.world.counts.handoffs) == (1, 0)


def test_a_transfer_ends_with_either_worker_and_is_stopped_where_it_is_read() -> None:
    told = ToldWorld()
    for number in (7, 8, 9):
        told.arrive(number)
    told.does(*[Send(number, "kv", (number,), 0, 1, 4, "x") for number in (7, 8)])
    told.world.sends.located(Located(7, ()))
    assert told.does(StopSend(7, "no longer"), StopSend(7, "twice")) == [(1, StopFetch(7))]
    told.world.lose(1, "killed", has_hosts=False)
    told.world.sends.fetched(Fetched(8, 4, ""))
    assert told.does(Send(9, "kv", (9,), 0, 1, 4, "x")) == []
    assert told.facts() == [
        Sent(7, 0, "no longer"),
        Lost(1, "killed"),
        Sent(8, 0, "killed"),
        Sent(9, 0, "the worker in slot 1 is lost"),
    ]


def test_joins_that_a_run_did_not_see_count_after_its_last_step() -> None:
    told = ToldWorld()
    told.arrive(7)
    told.arrive(8)
    told.does(Run(1, 0, (), True, 9, True, "decode"), JoinBatch(1, (7,), "a"), JoinBatch(1, (8,), "b"))
    runs = told.world.runs
    first = StepsDone(
        epoch=0, started_ns=0, ends_ns=(1, 2, 3), tokens={}, finished=(), running=True, joins=(2,)
    )
    assert runs.ran(1, first, 10) == Ran(1, 0, 3, (), True, joins=(2,))
    assert runs.ran(
        1, StepsDone(epoch=0, started_ns=3, ends_ns=(4, 5), tokens={}, finished=(), running=False), 11
    ) == Ran(1, 0, 2, (), False, joins=(2,))
    told.does(JoinBatch(1, (7,), "between runs"))
    assert len(runs) == 0


def test_the_rest() -> None:
    told = ToldWorld()
    assert told.does(Interrupt(1, "arrival", 2)) == [(1, StopSteps(2))]
    assert told.does(SwitchRole(0, "decode", "x"), ReleaseGpus(0, "empty"), place(0, warm=True)) == []
    assert told.world.loads.is_full(0)
    told.does(Wake(5, "look"))
    assert told.world.wake_ns == 5 and not told.world.is_busy


def test_a_stage_gets_its_own_layers_from_a_replica_that_has_others_too() -> None:
    """The target learns which layers the source has, for that says where they lie."""
    told = ToldWorld(4, 2, {0: Part("tiny", 0, 3), 1: Part("tiny", 1, 3)})
    stage = AllocateGpus(2, "tiny", (2,), "both", False, "grow", (1, 3))
    assert told.does(stage) == [(2, PlacePart(0, (1, 3)))]
    ends = (("replica", 0), ("replica", 1)), (("replica", 2),)
    sent = told.does(Load(0, "tiny", *ends, (), False, False, "grow", layers=(1, 3)))
    assert sent == [
        (2, Pull(load=0, unit=2, source=("replica", 0), place="replica", model=0, layers=(0, 3))),
        (2, Pull(load=0, unit=3, source=("replica", 1), place="replica", model=0, layers=(1, 3))),
    ]
    for unit in (2, 3, 4):
        pull(told, 2, 0, unit)
    assert told.facts() == [Loaded(0, 0, 2, True, 1)]


def test_models_are_told_apart() -> None:
    """Each with layers of its own; a host has copies of all, or gets those that are brought to it."""
    told = ToldWorld(3, 0, models=Models(("small", "large"), (2, 4)))
    places = [
        AllocateGpus(one, name, (one,), "both", False, "x") for one, name in enumerate(("large", "small"))
    ]
    assert told.does(*places) == [(0, PlacePart(1, (0, 4))), (1, PlacePart(0, (0, 2)))]
    ways = [(("host", one),) for one in range(2)]
    large = Load(0, "large", ways[0], (("replica", 0),), (), True, False, "x")
    small = Load(1, "small", ways[1], (("replica", 1),), (), True, False, "x")
    assert told.does(large, small) == [
        (0, Pull(0, 0, ("host", 0), "replica", 1)),
        (0, Pull(0, 1, ("host", 0), "replica", 1)),
        (1, Pull(1, 0, ("host", 1), "replica", 0)),
        (1, Pull(1, 1, ("host", 1), "replica", 0)),
    ]
    for unit in range(4):
        pull(told, 1, 1, unit)
    assert told.facts()[-1] == Loaded(1, 0, 2, True, 0)
    assert told.world.loads.is_full(1) and not told.world.loads.is_full(0)
