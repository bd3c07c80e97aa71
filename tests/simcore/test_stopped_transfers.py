"""Transfers of moves that are aborted are stopped on the simulated wire, and every Send is answered once."""

import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from tests.worlds.faulted import Played, play

CLUSTER = "cluster=blitz_b_2x4 trace=azure_conv_like seed=1"
SPLIT = f"system=blitzscale {CLUSTER} trace.rate_scale=4 trace.limit=24"
APART = f"system=distserve_full {CLUSTER} trace.limit=6"
NEVER_S = 9999


@dataclass
class Transfer:
    """As the journal tells of it; ``ends``: (time, bytes moved, cause) of each Sent."""

    requests: list[int]
    source: int
    target: int
    size_bytes: int
    begin_ns: int
    stops: int = 0
    ends: list[tuple[int, int, str]] = field(default_factory=list)


@cache
def played(words: str, at_s: float = NEVER_S, replica: int = 0) -> tuple[Played, dict[int, Transfer]]:
    """A run that loses a replica then, and its transfers of KV."""
    found, run = (
        dict[int, Transfer](),
        play([*words.split(), "faults=listed", f"faults.events={at_s:.9f}:replica:{replica}"]),
    )
    for text in run.checked.lines:
        now_ns, event, actions = json.loads(text)[:3]
        note(found, now_ns, event, actions)
    assert all(len(one.ends) == 1 for one in found.values()), "a Send is answered by one Sent"
    return run, found


def note(found: dict[int, Transfer], now_ns: int, event: list[Any], actions: list[list[Any]]) -> None:
    if event[0] == "sent" and event[1] in found:
        found[event[1]].ends.append((now_ns, event[2], event[3]))
    for action in actions:
        if action[0] == "send" and action[2] == "kv":
            _, number, _, requests, source, target, size_bytes = action[:7]
            found[number] = Transfer(requests, source, target, size_bytes, now_ns)
        elif action[0] == "stopsend" and action[1] in found:
            found[action[1]].stops += 1


def middle_s(*transfers: Transfer) -> float:
    """When all of them are on the wire."""
    begin_ns = max(one.begin_ns for one in transfers)
    end_ns = min(one.ends[0][0] for one in transfers)
    return (begin_ns + end_ns) / 2 / 1e9


def test_a_transfer_that_needs_no_lost_replica_is_stopped_by_the_controller() -> None:
    """Its batch needs first layers' KV of a replica that is lost: the rest is on the wire for nothing."""
    _, before = played(SPLIT)
    number, rest, piece = next(
        (number, one, before[number + 1])
        for number, one in before.items()
        if number + 1 in before and before[number + 1].requests == one.requests
    )
    at_s = middle_s(rest, piece)
    run, after = played(SPLIT, at_s, piece.source)
    ((end_ns, moved_bytes, cause),) = after[number].ends
    assert (after[number].stops, cause) == (1, f"replica {piece.source} was lost")
    assert abs(end_ns - at_s * 1e9) <= 1 and 0 < moved_bytes < rest.size_bytes
    assert set(rest.requests) <= run.ends.lost.keys()


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_transfer_whose_end_is_lost_is_over_at_that_time(end: str) -> None:
    """The world ends its flows; the batch fails with its source, and goes elsewhere without its target."""
    _, before = played(APART)
    number, one = next(iter(before.items()))
    at_s = middle_s(one)
    run, after = played(APART, at_s, getattr(one, end))
    ((end_ns, moved_bytes, cause),) = after[number].ends
    assert cause and abs(end_ns - at_s * 1e9) <= 1 and 0 < moved_bytes < one.size_bytes
    again = [
        other for other in after.values() if other.requests == one.requests and other is not after[number]
    ]
    if end == "source":
        assert not again and set(one.requests) <= run.ends.lost.keys()
    else:
        assert [other.source for other in again] == [one.source]
        assert set(one.requests) <= run.ends.finished_ids.keys()
