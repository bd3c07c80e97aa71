"""The order in which a plan shows layouts that meet its objective."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from servetwin.planning.candidate import Candidate
from servetwin.planning.ranking import ranked_layouts, tied_with


def search(name: str, gpus: int, gpu_seconds: float, ttft_ms: float) -> Any:
    numbers = {"gpu_seconds": gpu_seconds, "duration_s": 100.0, "ttft_ms.p99": ttft_ms}
    outcome = SimpleNamespace(numbers=numbers)
    return SimpleNamespace(
        layout=SimpleNamespace(name=name, hardware="h100"), gpus=gpus, outcome=outcome, not_searched=""
    )


LIMIT = SimpleNamespace(metric="ttft_ms.p99", at_most=True)
OPTIONS = cast(Any, SimpleNamespace(find="gpus", prices={}, objective=SimpleNamespace(limits=[LIMIT])))


@pytest.mark.parametrize("turned", [False, True])
def test_fewer_gpus_then_fewer_held_then_lower_latency(turned: bool) -> None:
    """A scaler that holds half of eight GPUs is an answer before one that holds all and is faster."""
    searches = [
        search("tp 4", 8, 800.0, 90.0), search("tp 2", 8, 400.0, 120.0), search("tp 1", 4, 400.0, 400.0),
        search("tp 2, slower", 8, 400.0, 130.0),
    ]  # fmt: skip
    able, unable = ranked_layouts(OPTIONS, searches[::-1] if turned else searches)
    names = [candidate.search.layout.name for candidate in able]
    assert names == ["tp 1", "tp 2", "tp 2, slower", "tp 4"] and unable == []


def test_layouts_that_hold_more_are_no_ties() -> None:
    fast, half = search("tp 4", 8, 800.0, 90.0), search("tp 2", 8, 400.0, 120.0)
    assert tied_with(OPTIONS, [Candidate(half), Candidate(fast)]) == []
