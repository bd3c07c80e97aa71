"""What is lost in the simulated world: machines, loads and transfers there end, and are told of once."""

from dataclasses import replace

import pytest

from hwmodels.topology.cables import cables_of
from hwmodels.topology.damage import damaged
from serving.vocabulary.action_mask import Masked
from serving.vocabulary.actions import Action, AllocateGpus, Assign, Endpoint, Load, Run, Send, Wake
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Event, Loaded, LoadStopped, Opened, Sent
from simcore.capabilities import SERVING
from simcore.data_plane.data_plane import DataPlane
from tests.worlds.data_planes import GBPS, load, plane

S = 1_000_000_000
KV_BYTES = int(10 * GBPS) // 8
GPUS = [(0,), (1,), (8,), (9,)]  # of blitz_b: two on each of its two hosts


def cluster() -> DataPlane:
    return plane("blitz_b", gpus_of=GPUS)


def kv(source: int, target: int, id: int = 0, size_bytes: int = KV_BYTES) -> Send:
    return Send(id, "kv", (1,), source, target, size_bytes, "")


def lose_nics(data: DataPlane, now_ns: int, *names: str) -> None:
    links = [link for one in cables_of(data.topology) if one.name in names for link in one.links]
    topology = damaged(data.outages.topology, links)
    data.outages.lose_links(now_ns, topology, frozenset(links), "cut")


def all_of(data: DataPlane, until_ns: int = 1000 * S) -> list[Event]:
    found: list[Event] = []
    while (due_ns := data.next_ns()) is not None and due_ns <= until_ns:
        found += data.collect(due_ns)
    return found


def cold(data: DataPlane, replica: int, source: Endpoint, id: int) -> Load:
    data.carry_out(0, AllocateGpus(replica, "llama3_8b", (replica,), "both", False, ""))
    return load(source, ("replica", replica), id)


def test_what_is_on_its_way_to_a_lost_replica_ends_and_what_follows_is_refused() -> None:
    data = cluster()
    data.send(0, kv(0, 2))
    data.send(0, kv(1, 3, id=1))
    data.outages.lose_replica(S // 100, 2, "gone")
    data.send(S // 100, kv(1, 2, id=2))
    first, *others = all_of(data)
    assert isinstance(first, Sent) and first.transfer == 0 and 0 < first.moved_bytes < KV_BYTES
    assert first.cause == "gone"
    assert others == [Sent(2, 0, "replica 2 is lost"), Sent(1, KV_BYTES, "")]
    assert 2 not in data.placement.placed and data.fabric.next_completion_s() == float("inf")


def test_a_transfer_over_a_lost_nic_takes_the_next_one_and_comes_whole() -> None:
    whole, broken = cluster(), cluster()
    for data in (whole, broken):
        data.send(0, kv(0, 2))
    lose_nics(broken, S // 100, "host0/nic0")
    assert all_of(whole) == all_of(broken) == [Sent(0, KV_BYTES, "")]
    assert broken.fabric.now_s == pytest.approx(whole.fabric.now_s, rel=1e-3), "the other NIC is as fast"
    assert any("nic1" in broken.topology.links[link].name for link in _used(broken))


def _used(data: DataPlane) -> list[int]:
    links = range(len(data.topology.links))
    return [link for link in links if data.fabric.carried_bytes(link, "kv") > 0]


def test_a_transfer_without_another_way_ends_with_the_cause() -> None:
    data = cluster()
    data.send(0, kv(0, 2))
    lose_nics(data, S // 100, *(f"host0/nic{nic}" for nic in range(8)))
    data.send(S // 100, kv(1, 2, id=1))
    first, second = all_of(data)
    assert isinstance(first, Sent) and isinstance(second, Sent)
    assert (first.cause, first.moved_bytes > 0, second.moved_bytes) == ("cut", True, 0)
    assert "no path is left from gpu 1 to gpu 8" in second.cause


def test_loads_that_need_what_is_lost_stop_and_new_ones_are_refused() -> None:
    data = cluster()
    data.carry_out(0, cold(data, 4, ("ssd", 0), 0))
    data.carry_out(0, cold(data, 5, ("replica", 0), 1))
    data.outages.lose_stop(S // 10, ("ssd", 0), "its SSD failed")
    data.carry_out(S // 10, replace(load(("ssd", 0), ("replica", 4), 2)))
    facts = all_of(data)
    stopped = [fact for fact in facts if isinstance(fact, LoadStopped)]
    assert [(one.load, one.cause) for one in stopped] == [(0, "its SSD failed"), (2, "its SSD failed")]
    assert [fact.load for fact in facts if isinstance(fact, Loaded) and fact.fully_loaded] == [1]
    assert data.outages.given_up == 2


def test_a_load_from_one_that_got_nothing_is_refused_and_does_not_hang() -> None:
    data = cluster()
    data.carry_out(0, cold(data, 4, ("replica", 0), 0))
    data.outages.lose_replica(S // 100, 0, "gone")
    data.carry_out(S // 100, cold(data, 5, ("replica", 4), 1))
    causes = [(one.load, one.cause) for one in all_of(data) if isinstance(one, LoadStopped)]
    assert causes == [(0, "gone"), (1, "replica 4, its source, got no parameters")]


def test_a_load_that_was_stopped_gets_nothing_more_from_the_one_that_fed_it() -> None:
    data = cluster()
    data.carry_out(0, cold(data, 4, ("ssd", 0), 0))  # slowly, so that the other waits for it now and then
    data.carry_out(0, replace(cold(data, 5, ("replica", 4), 1), every_layer=True))
    before = all_of(data, 2 * S)
    assert {fact.load for fact in before if isinstance(fact, Loaded)} == {1}, "it was fed"
    data.outages.lose_replica(2 * S, 5, "gone")
    stopped, *after = all_of(data)
    assert isinstance(stopped, LoadStopped) and stopped.load == 1
    assert after == [Loaded(0, 0, 32, True)], "load 1 is over"


class Asks:
    """A controller with one answer."""

    elastic = step_counts = None

    def __init__(self, action: Action) -> None:
        self.action = action

    def handle(self, now_ns: int, event: Event) -> list[Action]:
        return [self.action]


def test_a_masked_driver_refuses_what_it_does_not_carry_out() -> None:
    run = Run(0, 0, ((0, 0, 1),), True, 1, True, "")
    for action in (run, Assign(0, 0, ""), Wake(1, "")):
        assert Masked(Asks(action), SERVING, "mine", "write another").handle(0, Opened()) == [action]
    with pytest.raises(
        UserError, match=r"asks for Send at 7 ns, which mine does not carry out: write another"
    ):
        Masked(Asks(kv(0, 1)), SERVING, "mine", "write another").handle(7, Opened())
