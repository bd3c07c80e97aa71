"""Copies of parameters in host memory: the pool as it is used, caches, and both when hosts are lost."""

import pytest

from servetwin.assemble.copies import cached, everywhere, pooled
from serving.parameters.copies import CachedCopies, PooledCopies
from serving.parameters.parameter_pool import broken
from serving.vocabulary.actions import Endpoint, Load
from serving.vocabulary.layers import Part
from tests.worlds.parts import A, B

SIZES = {A: 100, B: 60}
SECOND = 10**9


def load(number: int, source: Endpoint, target: Endpoint, part: Part = A) -> Load:
    return Load(number, part.model, (source,), (target,), (), False, False, "", layers=part.layers)


def pool(drop: bool = True, hosts: int = 3) -> PooledCopies:
    """Model a's copy is on host 0, b's on host 1."""
    copies = pooled(SIZES, hosts, drop_when_deployed=drop)
    assert isinstance(copies, PooledCopies)
    copies.start([])
    return copies


def cache(**more: float) -> CachedCopies:
    copies = cached(SIZES, 2, **more)  # type: ignore[arg-type]
    assert isinstance(copies, CachedCopies)
    copies.start([])
    return copies


def test_a_deployed_model_leaves_host_memory_when_nobody_reads_it() -> None:
    copies = pool()
    assert (copies.hosts(A, 0), copies.hosts(B, 0)) == ([0], [1])
    copies.begin(load(0, ("host", 0), ("replica", 5)), [0], 1)
    copies.deployed(A, 5, 0, 2)
    assert copies.hosts(A, 2) == [0]  # it is still read
    assert copies.end(load(0, ("host", 0), ("replica", 5)), [0], True, 3) == []
    assert copies.hosts(A, 3) == []
    assert (copies.usage.now, copies.usage.largest) == (60, 160)


def test_a_pool_may_keep_what_is_deployed() -> None:
    copies = pool(drop=False)
    copies.deployed(A, 5, 0, 1)
    assert copies.hosts(A, 1) == [0] and copies.may_release(A, 5)


def test_the_last_copy_comes_back_before_it_leaves() -> None:
    copies = pool()
    copies.deployed(A, 5, 2, 1)
    assert not copies.may_release(A, 5)
    reload = copies.before_release(A, 5, 2)
    assert reload is not None and (reload.source, reload.domain) == (("replica", 5), 2)
    assert copies.before_release(A, 5, 3) is None  # one is coming
    copies.begin(load(1, ("replica", 5), ("host", 2)), [2], 3)
    assert not copies.may_release(A, 5)
    copies.end(load(1, ("replica", 5), ("host", 2)), [2], True, 4)
    assert copies.may_release(A, 5)
    copies.left(A, 5, 5)
    assert copies.hosts(A, 5) == [2] and broken(copies.pool) == []


def test_a_copy_that_does_not_come_back_is_asked_for_again() -> None:
    """The replica is still there, so nothing is in danger until it asks."""
    copies = pool()
    copies.deployed(A, 5, 2, 1)
    copies.before_release(A, 5, 2)
    copies.begin(load(1, ("replica", 5), ("host", 2)), [2], 2)
    assert copies.end(load(1, ("replica", 5), ("host", 2)), [2], False, 3) == []
    assert not copies.may_release(A, 5)
    again = copies.before_release(A, 5, 4)
    assert again is not None and again.source == ("replica", 5)


def test_a_load_that_the_pool_gave_up_ends_without_harm() -> None:
    copies = pool()
    copies.deployed(A, 5, 2, 1)
    copies.before_release(A, 5, 2)
    copies.begin(load(1, ("replica", 5), ("host", 2)), [2], 2)
    (reload,) = copies.lost(A, 5, 3)
    assert reload.source[0] == "ssd"
    copies.begin(load(2, reload.source, ("host", reload.domain)), [reload.domain], 3)
    assert copies.end(load(1, ("replica", 5), ("host", 2)), [2], False, 4) == []
    assert copies.pool.places(A).coming == (reload.domain,)
    (retry,) = copies.end(load(2, reload.source, ("host", reload.domain)), [reload.domain], False, 5)
    assert retry.part == A and broken(copies.pool) == []


def test_a_replica_without_parameters_is_lost_without_a_reload() -> None:
    copies = pool()
    assert copies.lost(A, 5, 1) == []
    copies.deployed(A, 5, 0, 2)
    (reload,) = copies.lost(A, 5, 3)
    assert reload.part == A


@pytest.mark.parametrize("host", [0, 1, 2])
def test_a_lost_host_leaves_every_model_somewhere_or_on_its_way(host: int) -> None:
    copies = pool()
    copies.deployed(A, 5, 2, 1)
    copies.lost(A, 5, 2)
    reloads = copies.lost_host(host, 3)
    assert {reload.domain for reload in reloads}.isdisjoint({host})
    assert broken(copies.pool) == []
    for model in SIZES:
        places = copies.pool.places(model)
        assert set(places.domains + places.coming) - {host}


def test_a_cache_keeps_what_passes_through_a_host_for_its_time() -> None:
    copies = cache(ttl_s=30.0)
    first = load(0, ("ssd", 0), ("replica", 1))
    copies.begin(first, [0], 0)
    assert copies.hosts(A, 1) == []  # not whole yet
    copies.end(first, [0], True, 2 * SECOND)
    assert copies.hosts(A, 2 * SECOND) == [0]
    again = load(1, ("host", 0), ("replica", 2))
    copies.begin(again, [0], 20 * SECOND)
    assert copies.end(again, [0], True, 21 * SECOND) == []
    assert (copies.caches.hits, copies.caches.misses) == (1, 1)
    assert copies.hosts(A, 50 * SECOND) == [0]  # 30 s since the last load was done
    assert copies.hosts(A, 51 * SECOND) == []
    assert copies.usage.now == 0


@pytest.mark.parametrize(("since", "stays"), [("load", [0]), ("fetch", [])])
def test_the_time_of_a_copy_may_count_from_its_fetch_whoever_reads_it_later(
    since: str, stays: list[int]
) -> None:
    copies = cache(ttl_s=30.0, since=since)  # type: ignore[arg-type]
    for number, source, begin_s in ((0, "ssd", 0), (1, "host", 20)):
        one = load(number, (source, 0), ("replica", number))
        copies.begin(one, [0], begin_s * SECOND)
        copies.end(one, [0], True, (begin_s + 2) * SECOND)
    assert copies.hosts(A, 31 * SECOND) == [0]
    assert copies.hosts(A, 32 * SECOND) == stays


def test_a_load_that_stops_leaves_no_copy() -> None:
    copies = cache()
    copies.begin(load(0, ("ssd", 0), ("replica", 1)), [0], 0)
    assert copies.usage.now == 100
    copies.end(load(0, ("ssd", 0), ("replica", 1)), [0], False, 5)
    assert (copies.hosts(A, 5), copies.usage.now) == ([], 0)


def test_two_loads_to_one_host_read_the_store_both_and_make_one_copy() -> None:
    copies = cache()
    one, two = (load(number, ("ssd", 0), ("replica", number)) for number in (0, 1))
    copies.begin(one, [0], 0)
    copies.begin(two, [0], 1)
    assert (copies.caches.misses, copies.usage.now) == (2, 100)
    copies.end(two, [0], True, 2)
    assert copies.hosts(A, 2) == []
    copies.end(one, [0], True, 3)
    assert copies.hosts(A, 3) == [0]


@pytest.mark.parametrize("whole", [False, True])
def test_a_lost_host_has_no_copies_and_its_loads_end_without_harm(whole: bool) -> None:
    copies = cache()
    copies.begin(load(0, ("ssd", 0), ("replica", 1)), [0], 0)
    copies.begin(load(1, ("ssd", 1), ("replica", 2), B), [1], 0)
    assert copies.lost_host(0, 1) == []
    assert copies.usage.now == 60
    copies.end(load(0, ("ssd", 0), ("replica", 1)), [0], whole, 2)
    copies.end(load(1, ("ssd", 1), ("replica", 2), B), [1], True, 2)
    assert (copies.hosts(A, 3), copies.hosts(B, 3)) == ([], [1])


def test_all_caches_have_all_models_for_ever() -> None:
    copies = everywhere(SIZES, 2)
    copies.start([])
    assert copies.hosts(A, 10**18) == copies.hosts(B, 10**18) == [0, 1]
    assert copies.usage.now == 320 and copies.may_release(A, 0)
    assert copies.before_release(A, 0, 0) is None and copies.lost(A, 0, 0) == []
