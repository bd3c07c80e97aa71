"""Migrations in worlds in which things are lost: no token is lost or repeated, and nothing is left behind."""

from collections import Counter
from dataclasses import replace

from serving.kv.migration_rules import CAUSES
from tests.worlds.drawing import on_drawn_seeds
from tests.worlds.drawn_migrations import check_world, drawn_world
from tests.worlds.migrating import Setting, play
from tests.worlds.naive_engine import Case
from tests.worlds.toy_rows import ToyRows

NS = 1 << 24
ROWS = ToyRows(5 * NS, NS // 3, NS // 50, 6 * NS, NS // 5)


@on_drawn_seeds((0, 2000))
def test_every_request_ends_once_whatever_is_lost(seed: int) -> None:
    """Forty worlds from each seed on; ``python -m tests.swarm --migrations 3000`` plays more."""
    found = Counter(
        record.outcome for number in range(seed, seed + 40) for record in check_world(number).records
    )
    assert found["committed"] > 20
    if seed == 0:
        assert {cause for cause in CAUSES if not found[cause]} <= {"destination left", "transfer stopped"}


def test_drawn_losses_of_the_global_scheduler() -> None:
    """A request that arrives in between is dispatched without it, coalesced as step by step."""
    ways = Counter[bool]()
    for seed in range(12_000, 12_120):
        if any(fault.what == "scheduler" for fault in drawn_world(seed).faults):
            lines = check_world(seed).lines
            ways.update("without the global scheduler" in line for line in lines if '["assign"' in line)
    assert min(ways[True], ways[False]) > 30


def test_without_bandwidth_nothing_is_committed() -> None:
    """The negative control: the copy never comes to its end, and the request finishes where it is."""
    case = Case(
        "prefill_first", 2, 4, 400, 0, 8, 128, "round_robin",
        ((0, 100, 300, 300), (0, 4, 2, 2), (1, 100, 300, 300)), ROWS,
    )  # fmt: skip
    setting = Setting(case, period_ns=50, control_ns=9, last_stage_blocks=8, chance=1.0)
    assert "committed" in {one.outcome for one in play(setting).records}
    starved = play(replace(setting, token_ns=1e6))
    assert {one.outcome for one in starved.records} == {"finished"}
    assert len(starved.recorder.done) == 3
