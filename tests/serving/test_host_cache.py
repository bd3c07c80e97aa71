"""Host caches: rules by example, and conservation under random use."""

from hypothesis import given
from hypothesis import strategies as st

from serving.parameters.host_cache import CacheRules, Evicted, HostCaches
from serving.vocabulary.layers import Part
from tests.worlds.parts import PARTS, A, B, C, D, E
from tests.worlds.refusals import refuses

S = 1_000_000_000


def test_hits_and_misses_are_counted_and_a_hit_is_a_use() -> None:
    caches = HostCaches(2, CacheRules(100, ttl_ns=30 * S))
    assert not caches.look_up(0, A, 0)
    assert caches.admit(0, A, 40, 0) == []
    assert caches.look_up(0, A, 20 * S) and not caches.look_up(1, A, 20 * S)
    assert (caches.hits, caches.misses) == (1, 2)
    assert caches.next_expiry_ns() == 50 * S
    assert caches.expire(50 * S - 1) == []
    assert caches.expire(50 * S) == [Evicted(0, A, "ttl")]
    assert caches.used_bytes == [0, 0] and caches.domains_of(A) == []


def test_time_since_load_is_not_renewed_by_use() -> None:
    caches = HostCaches(1, CacheRules(100, ttl_ns=30 * S, since="load"))
    caches.admit(0, A, 40, 0)
    caches.look_up(0, A, 29 * S)
    assert caches.expire(30 * S) == [Evicted(0, A, "ttl")]
    caches.admit(0, A, 40, 40 * S)
    caches.admit(0, A, 40, 50 * S)  # loaded again
    assert caches.expire(79 * S) == [] and caches.next_expiry_ns() == 80 * S


def test_room_is_made_by_the_least_recently_used() -> None:
    caches = HostCaches(1, CacheRules(100))
    for at, model in enumerate((A, B, C)):
        caches.admit(0, model, 30, at)
    caches.look_up(0, A, 5)
    assert caches.admit(0, D, 40, 6) == [Evicted(0, B, "room")]
    assert caches.parts_in(0) == [A, C, D] and caches.used_bytes == [100]
    assert caches.admit(0, E, 101, 7) is None
    assert caches.parts_in(0) == [A, C, D]


def test_a_copy_that_is_read_does_not_end() -> None:
    caches = HostCaches(1, CacheRules(50, ttl_ns=S))
    caches.admit(0, A, 40, 0)
    caches.pin(0, A, 0)
    assert caches.expire(10 * S) == [] and caches.next_expiry_ns() is None
    assert caches.admit(0, B, 40, 10 * S) is None
    refuses(AssertionError, "being read", caches.drop, 0, A)
    caches.unpin(0, A, 10 * S)
    assert caches.admit(0, B, 40, 10 * S) == [Evicted(0, A, "room")]
    refuses(AssertionError, "more often", caches.unpin, 0, B, 10 * S)


def test_a_copy_that_is_to_go_keeps_its_bytes_until_it_is_read() -> None:
    caches = HostCaches(1, CacheRules(50))
    caches.admit(0, A, 40, 0)
    caches.pin(0, A, 0)
    caches.pin(0, A, 1)
    caches.retire(0, A)
    assert not caches.holds(0, A) and caches.parts_in(0) == [] and caches.domains_of(A) == []
    assert caches.used_bytes == [40] and caches.admit(0, B, 20, 2) is None
    caches.unpin(0, A, 3)
    assert caches.used_bytes == [40]
    caches.unpin(0, A, 4)
    assert caches.used_bytes == [0] and not caches.holds(0, A)


def test_a_copy_that_is_to_go_may_stay_after_all() -> None:
    caches = HostCaches(2, CacheRules(50))
    caches.admit(0, A, 40, 0)
    caches.pin(0, A, 0)
    caches.retire(0, A)
    assert caches.admit(0, A, 40, 1) == [] and caches.domains_of(A) == [0] and caches.is_pinned(0, A)
    caches.unpin(0, A, 2)
    assert caches.used_bytes == [40, 0] and caches.used_ns(0, A) == 2
    caches.pin(0, A, 3)
    caches.retire(0, A)
    assert caches.lose(0) == [] and caches.used_bytes == [0, 0]
    caches.unpin(0, A, 4)  # the load that read it ends later
    assert caches.used_bytes == [0, 0]


def test_the_last_copy_ends_by_order_only() -> None:
    caches = HostCaches(2, CacheRules(50, ttl_ns=S, keep_one_copy=True))
    caches.admit(0, A, 40, 0)
    caches.admit(1, A, 40, 0)
    assert caches.expire(5 * S) == [Evicted(0, A, "ttl")]
    assert caches.expire(9 * S) == [] and caches.next_expiry_ns() is None
    assert caches.admit(1, B, 40, 9 * S) is None and caches.admit(0, B, 40, 9 * S) == []
    assert caches.drop(1, A) == Evicted(1, A, "order")


def test_a_lost_host_tells_which_models_are_nowhere() -> None:
    caches = HostCaches(2, CacheRules(100, keep_one_copy=True))
    for domain, model in ((0, B), (0, A), (1, B)):
        caches.admit(domain, model, 10, 0)
    assert caches.lose(0) == [A]
    assert caches.parts_in(0) == [] and caches.domains_of(B) == [1]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "look", "expire", "drop", "lose"]),
        st.integers(0, 2),
        st.sampled_from(PARTS[:4]),
        st.integers(0, 60),
        st.integers(0, 3),
    ),
    max_size=40,
)


@given(STEPS, st.booleans(), st.sampled_from(["use", "load"]), st.sampled_from([None, 2, 10]))
def test_bytes_and_copies_are_conserved(
    steps: list[tuple[str, int, Part, int, int]], keep: bool, since: str, ttl_ns: int | None
) -> None:
    caches = HostCaches(3, CacheRules(100, ttl_ns, since, keep))  # type: ignore[arg-type]
    book: dict[tuple[int, Part], int] = {}
    now_ns = 0
    for what, domain, model, size_bytes, later in steps:
        now_ns += later
        copies = {name: [d for d, m in book if m == name] for name in PARTS[:4]}
        if what == "admit":
            ended = caches.admit(domain, model, size_bytes, now_ns)
            for gone in ended or ():
                del book[gone.domain, gone.part]
            if ended is not None:
                book.setdefault((domain, model), size_bytes)
        elif what == "look":
            assert caches.look_up(domain, model, now_ns) == ((domain, model) in book)
        elif what == "expire":
            for gone in caches.expire(now_ns):
                del book[gone.domain, gone.part]
            due_ns = caches.next_expiry_ns()
            assert due_ns is None or due_ns > now_ns
        elif what == "drop" and (domain, model) in book:
            caches.drop(domain, model)
            del book[domain, model]
        elif what == "lose":
            caches.lose(domain)
            book = {key: size for key, size in book.items() if key[0] != domain}
        for name, before in copies.items():
            left = [d for d, m in book if m == name]
            if keep and before and what in ("admit", "expire"):
                assert left, "the last copy ended by time or room"
            assert caches.domains_of(name) == sorted(left)
        used = [sum(size for (d, _), size in book.items() if d == host) for host in range(3)]
        assert caches.used_bytes == used and all(bytes_ <= 100 for bytes_ in used)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.sampled_from(PARTS), st.integers(0, 9))),
    st.sampled_from(["use", "load"]),
    st.booleans(),
)
def test_the_next_expiry_is_the_least_of_all_copies(
    steps: list[tuple[int, int, Part, int]], since: str, keep: bool
) -> None:
    caches = HostCaches(3, CacheRules(100, 10, since, keep))  # type: ignore[arg-type]
    now_ns = 0
    for what, domain, part, wait_ns in steps:
        now_ns += wait_ns
        there = caches.holds(domain, part)
        if what == 0:
            caches.admit(domain, part, 30, now_ns)
        elif what == 1:
            caches.look_up(domain, part, now_ns)
        elif what == 2 and there:
            caches.pin(domain, part, now_ns)
        elif what == 3 and caches.is_pinned(domain, part):
            caches.unpin(domain, part, now_ns)
        elif what == 4 and there:
            caches.retire(domain, part)
        elif what == 5:
            caches.expire(now_ns)
        ends_ns = [
            caches._since_ns(copy) + 10
            for copies in caches._copies
            for part, copy in copies.items()
            if not copy.pins and not (keep and len(caches.domains_of(part)) == 1)
        ]
        assert caches.next_expiry_ns() == min(ends_ns, default=None)
        assert caches.all_bytes == sum(caches.used_bytes)
