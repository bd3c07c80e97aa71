"""Loads to instances and hosts by themselves: no service, no engine, no scaler."""

from typing import Any

import pytest

from serving.elastic.instances import Instances
from serving.elastic.load_progress import LoadProgress
from serving.elastic.placement import Placement
from serving.elastic.scale_log import ScaleLog
from serving.elastic.setup import ModelLimits
from serving.parameters.cache_answers import CheckedCopies
from serving.parameters.residency import Residency
from serving.protocols.planning import Edge
from serving.vocabulary.actions import Action, Load, StopLoad
from serving.vocabulary.events import Loaded
from tests.worlds.elastic_world import COPIES, SIZE_BYTES, Setting
from tests.worlds.told_systems import WHOLE

PASS_NS = 100


class Alone:
    """Replica 0 of a model of four layers begins to load from host 0's memory at 1000 ns."""

    def __init__(self, overlap: bool = True, role: Any = "both") -> None:
        setting = Setting()
        prototypes = {"m": setting.prototype("m")}
        books = COPIES["pool"](sizes_bytes={WHOLE: SIZE_BYTES}, hosts=2, host_gb=None)
        copies = CheckedCopies(books, 2, [WHOLE])
        copies.start([])
        self.instances = Instances(setting.cluster(), prototypes, [])
        self.instances.free_slots("m")
        self.instances.place(0, role, "loading")
        book, cluster = Residency(), setting.cluster()
        placement = Placement(
            instances=self.instances,
            cluster=cluster,
            park_ns=0,
            engines={},
            services={},
            place=lambda *_: None,
            log=ScaleLog(),
            residency=book,
        )
        limits = {
            "m": ModelLimits(
                bounds={}, prefill_tokens_per_s=1.0, kv_tokens=1, kv_tokens_per_s=1.0, pass_ns=PASS_NS
            )
        }
        self.progress = LoadProgress(copies, placement, limits, book)
        self.actions: list[Action] = []
        edge = Edge((("host", 0),), (("replica", 0),), 1, (), "a way")
        self.progress.begin(
            1000,
            WHOLE,
            edge,
            overlap=overlap,
            live=False,
            layers_first=False,
            reason="why",
            actions=self.actions,
        )

    @property
    def load(self) -> Load:
        (load,) = self.actions
        assert isinstance(load, Load)
        return load


@pytest.mark.parametrize(("layers", "took_ns", "may"), [
    (0, 0, False),  # nobody knows the pace
    (1, 33, True), (1, 34, False),  # three layers at 33 ns each, or at 34, in a pass of 100
    (2, 100, True), (2, 101, False),
    (3, 300, True), (3, 301, False),
    (4, 10_000, True),
])  # fmt: skip
def test_a_pass_may_overlap_what_comes_within_it_at_the_pace_so_far(
    layers: int, took_ns: int, may: bool
) -> None:
    alone = Alone()
    assert alone.progress.overlaps(1000 + took_ns, alone.load, 0, layers) == may


@pytest.mark.parametrize("other", [Alone(overlap=False), Alone(role="decode")])
def test_no_pass_overlaps_a_load_that_was_not_asked_to_or_of_one_that_decodes(other: Alone) -> None:
    assert not other.progress.overlaps(1000, other.load, 0, 4)


def test_a_load_ends_when_its_last_target_has_everything() -> None:
    alone = Alone()
    assert alone.load.every_layer and alone.load.reason == "why; a way"
    assert alone.progress.needs(0) and not alone.progress.needs(1)
    assert not alone.progress.ended(1001, alone.load, True, alone.actions)
    alone.progress.loads.loaded(Loaded(0, 0, 4, True))
    assert alone.progress.ended(1002, alone.load, True, alone.actions)
    assert not alone.progress.needs(0)


def test_loads_from_and_to_what_is_lost_are_stopped() -> None:
    alone = Alone()
    for stop in (("host", 1), ("replica", 1)):
        alone.progress.stop(stop, "lost", alone.actions)
    assert len(alone.actions) == 1
    for stop in (("host", 0), ("replica", 0)):
        alone.progress.stop(stop, "lost", alone.actions)
    assert alone.actions[1:] == [StopLoad(0, "lost")] * 2
