"""A request is copied to an instance that still loads, and leaves when that has its parameters."""

from dataclasses import replace
from typing import Any

import pytest

from policies.migration import LeastLoadedPairs
from serving.composition import MigrationParts
from serving.kv.migration_rules import MigrationRules
from serving.protocols.migration import InstancesView, Pair
from serving.protocols.scaling import ScaleDecision, ScalingView
from serving.services.colocated.migrating import Migrating
from serving.vocabulary.actions import Action, Detach, JoinBatch, Load, Migrate, ReleaseGpus, Send, StopSend
from serving.vocabulary.events import LoadStopped, Opened
from serving.vocabulary.kv_bytes import KvBytes
from tests.worlds.elastic_world import KV_BYTES_PER_TOKEN, MS, Setting, Told
from tests.worlds.told_systems import send

ROUND = 7 * MS
FIRST, NEW = 0, 1


class OneMore:
    """A second instance, once."""

    def __init__(self) -> None:
        self.decided = False

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        if self.decided:
            return ()
        self.decided = True
        return (
            ScaleDecision(
                act="load", model=view.model, role="both", count=1, instances=(), reason="one more"
            ),
        )


def told_with(into_loading: bool = True, policy: Any = LeastLoadedPairs, others: int = 0) -> Told:
    """Two requests decode on an instance, another one loads; every report is of one step.

    ``others``: instances that serve beside it, each of a longer request.
    """
    rules = MigrationRules("live", 1, 3, 3, KvBytes(KV_BYTES_PER_TOKEN), 8, into_loading)

    def migration() -> MigrationParts:
        return MigrationParts(policy(), ROUND, {"m": rules})

    told = Told(
        Setting(
            start={"both": 1 + others}, whims=OneMore, coalesce=False, queue="per_instance",
            migration=migration, kv_blocks=40, reports=False,
        )
    )  # fmt: skip
    told.fact(Opened())
    told.arrive(0, 6, 40), told.ran(FIRST)
    told.arrive(1, 12, 40), told.ran(FIRST), told.ran(FIRST)
    (load,) = of_kinds(look(told, 105 * MS), Load)
    assert load.targets == (("replica", NEW + others),)  # type: ignore[attr-defined]
    return told


def service_of(told: Told) -> Migrating:
    service = told.controller.services["m"]
    assert isinstance(service, Migrating)
    return service


def look(told: Told, at_ns: int = 0) -> list[Action]:
    return told.woke(at_ns or (told.now_ns // ROUND + 1) * ROUND)


def of_kinds(actions: list[Action], *kinds: type) -> list[Action]:
    return [one for one in actions if isinstance(one, kinds)]


def copied() -> Told:
    """What the request has is there, and its parameters are not."""
    told = told_with()
    look(told)
    begun = told.ran(FIRST)
    assert of_kinds(begun, Migrate, Send) == [
        Migrate(0, FIRST, NEW, "begun", ""),
        replace(send(0, (0,), FIRST, NEW, 8), positions=((0, 8),)),
    ]
    assert of_kinds(told.sent(0), Send, Detach, Migrate) == []
    assert told.states[NEW] == ("both", "loading")
    return told


def test_it_is_copied_during_the_load_and_leaves_after_it() -> None:
    told = copied()
    assert of_kinds([*told.ran(FIRST), *look(told), *told.ran(FIRST)], Send, Detach, Migrate) == []
    told.loaded(0)
    assert told.states[NEW] == ("both", "serving")
    assert of_kinds(told.ran(FIRST), Detach, Send) == [
        Detach(FIRST, 0, ""),
        replace(send(1, (0,), FIRST, NEW, 4), positions=((8, 11),), control_ns=3),
    ]
    assert of_kinds(told.sent(1), Migrate, JoinBatch) == [
        Migrate(0, FIRST, NEW, "committed", ""),
        JoinBatch(NEW, (0,), ""),
    ]
    assert service_of(told).outstanding(FIRST) == service_of(told).outstanding(NEW) == 1


def test_without_the_option_nothing_is_copied_before_it_serves() -> None:
    told = told_with(into_loading=False)
    assert of_kinds([*look(told), *told.ran(FIRST), *told.ran(FIRST)], Send, Migrate) == []
    told.loaded(0), look(told)
    assert of_kinds(told.ran(FIRST), Migrate) == [Migrate(0, FIRST, NEW, "begun", "")]


@pytest.mark.parametrize("copying", [True, False])
@pytest.mark.parametrize("what", ["load stopped", "destination lost", "source lost", "finished"])
def test_it_is_aborted_where_the_load_ends_otherwise(what: str, copying: bool) -> None:
    told = told_with() if copying else copied()
    if copying:
        look(told), told.ran(FIRST)
    if what == "load stopped":
        actions = told.fact(LoadStopped(0, 0, 0, "link lost"))
        assert of_kinds(actions, ReleaseGpus) == [ReleaseGpus(NEW, "")], "nothing keeps it"
    elif what == "finished":
        actions = told.ran(FIRST, 0)
    else:
        actions = told.lose(FIRST if what == "source lost" else NEW)
    assert len(of_kinds(actions, StopSend)) == copying
    assert service_of(told).migrations.of_replica == {}
    assert not list(told.controller.engines[NEW].ledger.holders())
    assert [one.outcome for one in service_of(told).migrations.log.records] != ["committed"]


def test_what_drains_as_soon_as_it_is_loaded_takes_nothing() -> None:
    told = copied()
    told.loaded(0)
    service_of(told).leave(NEW, [])
    assert service_of(told).migrations.of_replica == {} and not told.controller.engines[FIRST].halts


def test_nobody_leaves_an_instance_that_loads() -> None:
    class Backwards(LeastLoadedPairs):
        def pair(self, view: InstancesView) -> tuple[Pair, ...]:
            return tuple([Pair(one, FIRST, "it loads") for one in view.loading])

    told = told_with(policy=Backwards)
    with pytest.raises(Exception, match="instance 1 has no requests of m"):
        look(told)


class Scripted(LeastLoadedPairs):
    """These pairs, one a look."""

    pairs: tuple[tuple[int, int], ...] = ((0, 2), (0, 1), (0, 2))

    def __init__(self) -> None:
        super().__init__()
        self.left = list(self.pairs)

    def pair(self, view: InstancesView) -> tuple[Pair, ...]:
        if not view.loading or not self.left or view.engaged(0):
            return ()
        return (Pair(*self.left.pop(0), "as written"),)


def test_who_waits_gives_way_to_an_instance_that_serves_already() -> None:
    told = told_with(policy=Scripted, others=1)
    look(told), told.ran(0), told.sent(0)
    actions = look(told)
    assert of_kinds(actions, Migrate) == [Migrate(0, 0, 2, "aborted", "")]
    assert not list(told.controller.engines[2].ledger.holders())
    told.ran(1) if told.controller.engines[1].running else None
    assert [one.target for one in of_kinds(told.ran(0), Migrate)] == [1]  # type: ignore[attr-defined]
    assert [one.outcome for one in service_of(told).migrations.log.records] == ["superseded"]


def test_who_waits_does_not_give_way_to_another_that_loads() -> None:
    told = told_with(policy=Scripted, others=1)
    look(told), told.ran(0), told.sent(0)
    migrations = service_of(told).migrations
    before = migrations.of_replica[0]
    migrations.begin(Pair(0, 2, "it loads too"), [])
    assert migrations.of_replica[0] is before and migrations.log.declined == 1
