"""The parameter pool: every rule by example, and its invariant under random use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.parameters.host_cache import CacheRules, Evicted, HostCaches
from serving.parameters.parameter_pool import REMOTE, ParameterPool, Reload, broken
from serving.vocabulary.errors import UserError
from serving.vocabulary.layers import Part
from tests.worlds.parts import PARTS, A, B, C, D
from tests.worlds.refusals import refuses


def a_pool(
    hosts: int = 2,
    capacity_bytes: int = 100,
    sizes_bytes: dict[Part, int] | None = None,
    ssds: dict[Part, frozenset[int]] | None = None,
) -> ParameterPool:
    caches = HostCaches(hosts, CacheRules(capacity_bytes, keep_one_copy=True))
    return ParameterPool(caches, {A: 40} if sizes_bytes is None else sizes_bytes, ssds)


def deployed_only(pool: ParameterPool, model: Part, replica: int, domain: int) -> None:
    """The model's only copy is on the GPUs of this replica."""
    pool.deployed(model, replica, domain)
    pool.drop_host_copies(model)


def test_one_copy_of_each_model_is_spread_evenly() -> None:
    pool = a_pool(hosts=3, sizes_bytes=dict.fromkeys(PARTS, 10))
    assert pool.spread(0) == [(model, at % 3) for at, model in enumerate(PARTS)]
    assert pool.caches.used_bytes == [30, 20, 20]
    assert broken(pool) == []


def test_the_spread_is_even_in_bytes() -> None:
    pool = a_pool(hosts=2, sizes_bytes={A: 10, B: 30, C: 20})
    assert pool.spread(0) == [(A, 1), (B, 0), (C, 1)]
    assert pool.caches.used_bytes == [30, 30]


def test_a_spread_that_does_not_fit_says_what_to_change() -> None:
    with pytest.raises(
        UserError, match=r"40 bytes of memory left for the copy of layers \[16, 24\) of m: give the hosts"
    ):
        a_pool(hosts=2, capacity_bytes=79, sizes_bytes=dict.fromkeys(PARTS[:3], 40)).spread(0)


def test_the_caches_must_keep_the_last_copy() -> None:
    refuses(AssertionError, "keep the last copy", ParameterPool, HostCaches(1, CacheRules(100)), {A: 40})


def test_a_model_that_was_never_placed_breaks_the_invariant_until_it_is_reloaded() -> None:
    pool = a_pool()
    assert broken(pool) == [f"{A}: in no memory and on their way to none"]
    assert pool.repair(0) == [Reload(A, REMOTE, 0, (), "no copy is in memory")]
    assert broken(pool) == [] and pool.repair(0) == []
    places = pool.places(A)
    assert (places.domains, places.coming, places.in_memory) == ((), (0,), False)
    pool.arrived(A, 0, 1)
    places = pool.places(A)
    assert (places.domains, places.coming, places.in_memory) == ((0,), (), True)


def test_a_copy_to_come_whose_room_is_gone_is_seen() -> None:
    pool = a_pool()
    pool.repair(0)
    pool.caches.lose(0)
    assert broken(pool) == [f"{A}: a copy comes to host 0, which keeps no room for it"]


def test_a_deployed_model_frees_its_host_memory() -> None:
    pool = a_pool()
    pool.spread(0)
    refuses(AssertionError, r"no replica has layers \[0, 8\)", pool.drop_host_copies, A)
    pool.deployed(A, 7, 1)
    assert pool.drop_host_copies(A) == [Evicted(0, A, "order")]
    assert pool.places(A).replicas == (7,) and pool.caches.used_bytes == [0, 0]
    assert broken(pool) == []


def test_a_replica_is_deployed_once_and_on_a_host_that_lives() -> None:
    pool = a_pool(sizes_bytes={A: 10, B: 10})
    pool.deployed(A, 7, 1)
    refuses(AssertionError, "replica 7 is taken", pool.deployed, B, 7, 0)
    pool.lose_host(0, 0)
    refuses(AssertionError, "host 0 is gone", pool.deployed, B, 8, 0)


def test_a_replica_may_go_while_others_have_the_model() -> None:
    pool = a_pool()
    deployed = ((7, 0), (8, 1))
    for replica, domain in deployed:
        pool.deployed(A, replica, domain)
    assert pool.bring_back(A, 7, 0) is None
    pool.undeploy(A, 7)
    assert pool.places(A).replicas == (8,) and pool.is_last_copy(A, 8)


def test_the_last_replica_goes_after_a_host_copy_has_come_back() -> None:
    pool = a_pool()
    pool.spread(0)
    deployed_only(pool, A, 7, 1)
    assert pool.is_last_copy(A, 7) and not pool.may_undeploy(A, 7)
    reason = "replica 7 has the last copy and is to go"
    assert pool.bring_back(A, 7, 0) == Reload(A, ("replica", 7), 1, (), reason)
    assert pool.bring_back(A, 7, 0) is None, "it is under way"
    refuses(AssertionError, r"the last copy of layers \[0, 8\) of m, or is read", pool.undeploy, A, 7)
    pool.arrived(A, 1, 5)
    pool.undeploy(A, 7)
    assert pool.places(A).domains == (1,) and broken(pool) == []
    pool.deployed(A, 8, 0)
    assert pool.drop_host_copies(A) == [Evicted(1, A, "order")], "a copy that is whole is not pinned"


def test_a_replica_that_a_reload_reads_stays_even_if_it_is_not_the_last() -> None:
    pool = a_pool()
    pool.deployed(A, 7, 1)
    pool.bring_back(A, 7, 0)
    pool.deployed(A, 8, 0)
    assert not pool.is_last_copy(A, 7) and not pool.may_undeploy(A, 7)
    assert pool.may_undeploy(A, 8)
    pool.arrived(A, 1, 1)
    assert pool.may_undeploy(A, 7)


def test_a_copy_comes_back_to_another_host_when_its_own_is_full() -> None:
    pool = a_pool(sizes_bytes={A: 40, B: 80})
    pool.caches.admit(0, B, 80, 0)
    pool.deployed(A, 7, 0)
    reload = pool.bring_back(A, 7, 0)
    assert reload is not None and reload.domain == 1


def test_copies_that_make_room_are_named() -> None:
    pool = a_pool(sizes_bytes={A: 40, B: 80})
    for domain in (0, 1):
        pool.caches.admit(domain, B, 80, 0)
    pool.deployed(A, 7, 1)
    reload = pool.bring_back(A, 7, 0)
    assert reload is not None and reload.ended == (Evicted(1, B, "room"),)
    assert broken(pool) == []


def test_without_room_on_any_host_the_last_replica_stays() -> None:
    pool = a_pool(hosts=1, sizes_bytes={A: 40, B: 80})
    pool.caches.admit(0, B, 80, 0)
    pool.deployed(A, 7, 0)
    assert pool.bring_back(A, 7, 0) is None
    assert not pool.may_undeploy(A, 7) and broken(pool) == []


def test_a_lost_host_names_what_is_in_no_memory_any_more() -> None:
    pool = a_pool(3, 100, dict.fromkeys(PARTS[:4], 10), {B: frozenset({0, 2})})
    for model, domain in ((A, 0), (B, 0), (C, 1), (D, 0)):
        pool.caches.admit(domain, model, 10, 0)
    pool.deployed(A, 7, 1)  # lives on a GPU elsewhere
    pool.deployed(D, 8, 0)  # GPU and host copy die together
    reason = "no copy is in memory"
    assert pool.lose_host(0, 5) == [
        Reload(B, ("ssd", 2), 2, (), reason),
        Reload(D, REMOTE, 1, (), reason),
    ]
    assert pool.places(B).ssds == (2,) and pool.places(D).replicas == ()
    assert broken(pool) == []


def test_a_reload_to_a_lost_host_begins_again_elsewhere() -> None:
    pool = a_pool()
    assert [one.domain for one in pool.repair(0)] == [0]
    assert [one.domain for one in pool.lose_host(0, 1)] == [1]
    assert pool.places(A).coming == (1,) and pool.caches.used_bytes == [0, 40]


def test_a_reload_from_a_lost_replica_begins_again_from_the_store() -> None:
    pool = a_pool()
    pool.deployed(A, 7, 1)
    pool.bring_back(A, 7, 0)
    assert pool.lose_replica(A, 7, 1) == [Reload(A, REMOTE, 0, (), "no copy is in memory")]
    assert pool.caches.used_bytes == [40, 0], "the half copy is gone"


def test_a_lost_replica_that_was_not_the_last_costs_nothing() -> None:
    pool = a_pool()
    pool.spread(0)
    pool.deployed(A, 7, 1)
    assert pool.lose_replica(A, 7, 1) == []


def test_a_reload_that_failed_is_wanted_again_only_if_needed() -> None:
    pool = a_pool(ssds={A: frozenset({1})})
    first = pool.repair(0)
    assert [one.source for one in first] == [("ssd", 1)]
    again = pool.reload_failed(A, 1, 1)
    assert [one.source for one in again] == [REMOTE]
    pool.deployed(A, 7, 0)
    assert pool.reload_failed(A, again[0].domain, 2) == []
    assert pool.places(A).coming == () and pool.caches.used_bytes == [0, 0]


def test_a_store_that_failed_is_asked_no_more_and_a_model_in_none_is_lost() -> None:
    pool = a_pool(ssds={A: frozenset({1})})
    (first,) = pool.repair(0)
    (again,) = pool.reload_failed(A, first.domain, 1)
    assert (first.source, again.source) == (("ssd", 1), REMOTE)
    assert not pool.is_lost(A) and pool.reload_failed(A, again.domain, 2) == []
    assert pool.is_lost(A) and pool.stranded() == [A] and broken(pool) == []


def test_a_model_without_room_is_stranded_until_a_host_is_back() -> None:
    pool = a_pool(hosts=1)
    pool.spread(0)
    assert pool.lose_host(0, 1) == [] and pool.stranded() == [A]
    refuses(AssertionError, "host 0 was not gone", a_pool(hosts=1).host_returned, 0, 0)
    assert pool.host_returned(0, 2) == [Reload(A, REMOTE, 0, (), "no copy is in memory")]
    assert broken(pool) == []


def test_room_that_becomes_free_is_used_by_the_next_repair() -> None:
    pool = a_pool(hosts=1, sizes_bytes={A: 60, B: 60})
    pool.caches.admit(0, A, 60, 0)
    assert pool.repair(0) == [] and pool.stranded() == [B]
    deployed_only(pool, A, 7, 0)
    assert [one.part for one in pool.repair(1)] == [B]
    assert broken(pool) == []


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "deploy",
                "free",
                "reclaim",
                "lose replica",
                "lose host",
                "return",
                "arrive",
                "fail",
                "cache",
                "expire",
            ]
        ),
        st.sampled_from(PARTS[:3]),
        st.integers(0, 2),  # a host, or which of several
    ),
    max_size=60,
)


class _World:
    """Carries out what the pool asks for, with books of its own, which the pool never sees."""

    def __init__(self, capacity_bytes: int) -> None:
        caches = HostCaches(3, CacheRules(capacity_bytes, ttl_ns=20, keep_one_copy=True))
        self.pool = ParameterPool(caches, {A: 10, B: 20, C: 30}, {B: frozenset({0, 2})})
        self.hosted = {model: set[int]() for model in PARTS[:3]}
        self.replicas: dict[int, tuple[Part, int]] = {}
        self.reloads: set[tuple[Part, int]] = set()
        self.alive = {0, 1, 2}
        self.ids = 0

    def of(self, model: Part, which: int) -> int | None:
        ids = [replica for replica, (name, _) in self.replicas.items() if name == model]
        return ids[which % len(ids)] if ids else None

    def begun(self, reloads: list[Reload]) -> None:
        for reload in reloads:
            assert reload.domain in self.alive and (reload.part, reload.domain) not in self.reloads
            kind, number = reload.source
            assert kind != "replica" or self.replicas[number][0] == reload.part
            assert kind != "ssd" or (number == reload.domain and number in self.alive)
            self.reloads.add((reload.part, reload.domain))

    def step(self, what: str, model: Part, number: int, now_ns: int) -> None:
        pool, replica = self.pool, self.of(model, number)
        ready = sorted(pool.places(model).coming)
        if what == "deploy" and number in self.alive:
            self.replicas[self.ids] = model, number
            pool.deployed(model, self.ids, number)
            self.ids += 1
        elif what == "free" and replica is not None:
            pool.drop_host_copies(model)
        elif what == "reclaim" and replica is not None:
            back = pool.bring_back(model, replica, now_ns)
            self.begun([back] if back else [])
            if pool.may_undeploy(model, replica):
                pool.undeploy(model, replica)
                del self.replicas[replica]
        elif what == "lose replica" and replica is not None:
            del self.replicas[replica]
            self.lost(pool.lose_replica(model, replica, now_ns))
        elif what == "lose host" and number in self.alive:
            self.alive.remove(number)
            self.replicas = {one: at for one, at in self.replicas.items() if at[1] != number}
            self.lost(pool.lose_host(number, now_ns))
        elif what == "return" and number not in self.alive:
            self.alive.add(number)
            self.begun(pool.host_returned(number, now_ns))
        elif what in ("arrive", "fail") and ready:
            self.reloads.remove((model, ready[0]))
            if what == "arrive":
                pool.arrived(model, ready[0], now_ns)
            else:
                self.begun(pool.reload_failed(model, ready[0], now_ns))
        elif what == "cache" and number in self.alive and not pool.caches.holds(number, model):
            pool.caches.admit(number, model, {A: 10, B: 20, C: 30}[model], now_ns)
        elif what == "expire":
            pool.caches.expire(now_ns)

    def lost(self, reloads: list[Reload]) -> None:
        """Reloads that ended with what was lost leave the books before the new ones enter."""
        new = {(one.part, one.domain) for one in reloads}
        coming = {(model, domain) for model in PARTS[:3] for domain in self.pool.places(model).coming}
        self.reloads &= coming - new
        self.begun(reloads)


@given(STEPS, st.sampled_from([40, 60, 200]))
def test_every_model_stays_in_memory_or_is_on_its_way(
    steps: list[tuple[str, Part, int]], capacity_bytes: int
) -> None:
    world = _World(capacity_bytes)
    pool = world.pool
    pool.spread(0)
    for now_ns, (what, model, number) in enumerate(steps):
        world.step(what, model, number, now_ns)
        if what in ("free", "arrive", "cache", "expire"):  # these may make room, and say nothing of it
            world.begun(pool.repair(now_ns))
        coming = {(name, domain) for name in PARTS[:3] for domain in pool.places(name).coming}
        assert coming == world.reloads, "every reload under way was returned once"
        for name in PARTS[:3]:
            places = pool.places(name)
            assert places.replicas == tuple(one for one, (of, _) in world.replicas.items() if of == name)
            assert set(places.domains) <= world.alive and set(places.ssds) <= world.alive
            assert places.in_memory or places.coming or name in pool.stranded()
        if capacity_bytes == 200 and world.alive:
            assert broken(pool) == [], "there is room for everything"
        assert pool.repair(now_ns) == [], "what could be reloaded was returned by the step itself"
