"""Runs in which requests find blocks of each other: coalesced as step by step, checked after every event."""

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.vocabulary.actions import Run
from serving.vocabulary.request import Request
from simcore.simulation import Simulation
from tests.worlds.naive_engine import Case
from tests.worlds.shared_prefixes import first_tokens, sharing
from tests.worlds.strategies import cases
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Checked, Collected, RandomCuts, controller_of, requests_of


class Chunks:
    """A controller whose first chunk of every request is kept."""

    elastic = step_counts = None

    def __init__(self, inner: Checked) -> None:
        self.inner = inner
        self.begun: dict[int, int] = {}

    def handle(self, now_ns: int, event: Any) -> Any:
        actions = self.inner.handle(now_ns, event)
        for action in actions:
            if isinstance(action, Run):
                for request, start, _ in action.chunks:
                    self.begun.setdefault(request, start)
        return actions


def run(case: Case, seed: int, coalesce: bool = True, cut: bool = False) -> tuple[Any, ...]:
    requests = sharing(requests_of(case), Random(seed))
    random = Random(seed + 1)
    wrap = (lambda batcher: RandomCuts(batcher, random)) if cut else (lambda batcher: batcher)
    chunks = Chunks(Checked(controller_of(case, coalesce, wrap)))
    recorder = Collected()
    Simulation(chunks, requests, [case.rows] * case.replicas, recorder).run()  # type: ignore[arg-type]
    engines = chunks.inner.controller.engines.values()
    counted = []
    for engine in engines:
        cache = engine.ledger.cache
        assert engine.ledger.free_blocks == engine.ledger.total_blocks
        if cache is not None:
            assert not cache.tables and cache.shared_blocks == 0
            counted.append((cache.queried_tokens, cache.hit_tokens, cache.evicted_blocks))
    assert case.prefix_caching or not any(chunks.begun.values())
    return recorder.done, chunks.begun, counted


@given(case=cases(), seed=st.integers(0, 2**32))
@settings(max_examples=50)
def test_coalesced_runs_find_what_single_steps_find(case: Case, seed: int) -> None:
    coalesced = run(case, seed)
    assert coalesced == run(case, seed), "the same again"
    assert coalesced == run(case, seed, coalesce=False)
    if case.batcher == "chunked":
        assert coalesced == run(case, seed, cut=True)


def test_whose_the_first_tokens_of_a_request_are() -> None:
    third = Request(3, 0, 30, 5, "m", shared_prefix=((0, 10), (2, 20)))
    assert first_tokens(third, 8) == ((0, 8),)
    assert first_tokens(third, 20) == ((0, 10), (2, 20))
    assert first_tokens(third, 33) == ((0, 10), (2, 20), (3, 33))


def growing_case() -> tuple[Case, list[tuple[Request, int]]]:
    """7 blocks of 4. Requests 0 and 1 hold 3 and 2 of them; 2 has 5 blocks of prompt, all but one token 0's.

    It finds 2 blocks and needs 3, with 2 free, until the third step of request 0 fills one that it finds.
    """
    rows = ToyRows(1000 << 24, 0, 0, 1000 << 24, 0, 0, None, 1, 0, 0)
    lengths = ((0, 9, 8, 9), (0, 5, 8, 9), (1500, 20, 2, 4))
    case = Case("chunked", 1, 4, 7, 0, 8, 64, "round_robin", lengths, rows, True, False, True, False)
    requests = requests_of(case)
    last, output = requests[2]
    return case, [*requests[:2], (replace(last, shared_prefix=((0, 19),)), output)]


def test_a_head_that_waits_for_generated_tokens_is_looked_at_after_every_step() -> None:
    """The run of those who decode takes one step at a time, as nobody's finish or arrival would end it."""
    case, requests = growing_case()
    found = []
    for coalesce in (True, False):
        chunks = Chunks(Checked(controller_of(case, coalesce)))
        recorder = Collected()
        Simulation(chunks, requests, [case.rows], recorder).run()  # type: ignore[arg-type]
        found.append((recorder.done, chunks.begun))
    assert found[0] == found[1]
    assert found[0][1] == {0: 0, 1: 0, 2: 12}
