"""Copies that a policy keeps and forgets: when they are there, read, and their bytes free again."""

from serving.parameters.kept_copies import KeptCopies
from serving.vocabulary.actions import Load
from tests.worlds.parts import A, B

SIZES = {A: 40, B: 40}


def load_of(number: int, host: int) -> Load:
    """From a host's memory."""
    return Load(
        number, A.model, (("host", host),), (("replica", number),), (), False, False, "", False, A.layers
    )


def test_a_copy_is_there_when_its_replica_is() -> None:
    copies = KeptCopies(2, 100, SIZES)
    copies.keep(0, 1, A, False)
    assert not copies.has(1, A) and copies.hosts_of(A) == copies.on(1) == []
    assert copies.caches.used_bytes == [0, 40]
    copies.came(5, 1, A)
    assert copies.has(1, A) and copies.hosts_of(A) == [1] and copies.on(1) == [A]
    assert copies.caches.used_ns(1, A) == 5 and not copies.caches.is_pinned(1, A)
    copies.came(7, 1, A)  # another replica has it from the store
    assert copies.caches.used_ns(1, A) == 7


def test_who_does_not_come_is_no_copy_that_is_forgotten() -> None:
    copies = KeptCopies(1, 100, SIZES)
    copies.keep(0, 0, A, False)
    copies.evict(1, 0, A)
    copies.evict(1, 0, A)
    assert (copies.evicted, copies.caches.used_bytes) == (0, [0])
    copies.came(2, 0, A)
    assert not copies.has(0, A)


def test_what_is_read_keeps_its_bytes_and_may_stay() -> None:
    copies = KeptCopies(1, 100, SIZES)
    copies.keep(0, 0, A, True)
    for number in (0, 1):
        copies.begin(1, load_of(number, 0))
    copies.evict(2, 0, A)
    assert not copies.has(0, A) and copies.caches.used_bytes == [40] and copies.evicted == 1
    copies.end(3, load_of(0, 0))
    copies.keep(4, 0, A, False)  # no replica of the host has it any more, the load still reads it
    assert copies.has(0, A) and copies.caches.is_pinned(0, A)
    copies.evict(5, 0, A)
    copies.end(6, load_of(1, 0))
    assert copies.caches.used_bytes == [0]


def test_a_part_is_forgotten_on_all_hosts_and_a_host_forgets_all() -> None:
    copies = KeptCopies(3, 100, SIZES)
    for host in range(3):
        copies.keep(0, host, A, host < 2)
        copies.keep(0, host, B, True)
    copies.forget(1, A)
    assert copies.evicted == 2 and copies.caches.used_bytes == [40, 40, 40]
    copies.keep(2, 0, A, False)
    copies.lose(0)
    assert copies.evicted == 3 and copies.caches.used_bytes == [0, 40, 40]
    copies.came(3, 0, A)
    assert copies.hosts_of(A) == [] and copies.hosts_of(B) == [1, 2]
