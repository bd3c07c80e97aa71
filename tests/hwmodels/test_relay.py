"""Relays by themselves: how many chunks they take, and how far they are."""

from itertools import accumulate
from random import Random

import pytest

from hwmodels.loading.relay import Relay, RelayState, relayed_chunks
from tests.worlds.drawing import on_drawn_seeds


@on_drawn_seeds(range(30))
def test_when_the_last_relayed_chunk_comes_the_others_have_passed(seed: int) -> None:
    """However much slower than at their fastest chunks come; one chunk more would not do at the fastest."""
    random = Random(seed)
    sizes = [random.choice((0.0, 1.0, 1.0, 2.0, 5.0)) for _ in range(random.randrange(1, 12))]
    coming, passing, latency_s = 1.0, random.choice((0.1, 0.5, 0.9, 1.5)), random.choice((0.0, 0.05, 1.0))
    count = relayed_chunks(sizes, coming, passing, latency_s)
    assert count == 0 or 3 <= count <= len(sizes)
    for slower in (lambda: 0.0, lambda: random.choice((0.0, 0.0, random.random()))):
        arrived_s = list(accumulate(size * coming + slower() for size in sizes))
        free_s = -1.0
        for chunk in range(count - 1):
            free_s = (free_s if free_s >= arrived_s[chunk] else arrived_s[chunk] + latency_s) + sizes[
                chunk
            ] * passing
        assert not count or free_s <= arrived_s[count - 1]


def test_no_relay_where_the_second_hop_is_slower_or_chunks_are_few() -> None:
    assert relayed_chunks([1.0] * 5, 1.0, 0.5, 0.0) == 5
    assert relayed_chunks([1.0] * 5, 1.0, 1.0, 0.0) == 0
    assert relayed_chunks([1.0] * 5, 1.0, 0.5, 0.6) == 0
    assert relayed_chunks([1.0] * 2, 1.0, 0.5, 0.0) == 0
    assert relayed_chunks([1.0, 1.0, 1.0, 0.0], 1.0, 0.5, 0.0) == 3, "the last one comes with the one before"


@pytest.mark.parametrize(
    ("now_s", "state"),
    [
        (0.5, RelayState(0, 0.0, None)),
        (1.1, RelayState(0, 0.0, pytest.approx(0.1))),
        (1.45, RelayState(0, pytest.approx(5.0), 0.0)),
        (1.9, RelayState(1, 0.0, None)),
        (2.2, RelayState(1, 0.0, 0.0)),
        (2.45, RelayState(1, pytest.approx(5.0), 0.0)),
    ],
)
def test_how_far_a_relay_is(now_s: float, state: RelayState) -> None:
    """Chunks of 10 bytes come at 1 and 2 s; each waits 0.2 s and passes in half a second."""
    relay = Relay(1, 0, 4, 20.0, 0.2)
    arrived_s = [at_s for at_s in (1.0, 2.0) if at_s <= now_s]
    assert relay.state([10.0] * 4, arrived_s, now_s) == state
