"""Free memory in pieces: who is blocked, whether the pieces together would do, by hand and in a run."""

import json
from pathlib import Path

import numpy as np
import pytest

from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from servetwin.results import fragmentation
from servetwin.results.fragmentation import shares_of
from servetwin.results.series_sink import SeriesSink
from servetwin.run.simulate import execute, prepare

WORDS = (
    "cluster=llumnix_4x1", "model=llama_7b", "engine=vllm_0_1_7", "trace=llumnix_mm", "trace.requests=1500",
    "trace.rate_per_s=12", "series.period_s=1", "uncertainty=off",
)  # fmt: skip

FULL = (*(w for w in WORDS if w != "trace.requests=1500"), "trace.requests=300", "engine.kv_tokens=4800")
QUEUES = {
    "preempted": (*FULL, "system=infaas_pp"),
    "with priorities": (*FULL, "system=llumnix", "trace.high_priority_share=0.3"),
    "moved without KV": (*FULL, "system=llumnix_base", "migration.mode=recompute"),
    "swapped": (*FULL, "system=infaas_pp", "engine.preemption=swap"),
    "lost": (*FULL, "system=llumnix_base", "faults=one_replica", "faults.at_s=12"),
    "scaled": (*FULL, "system=llumnix_base_autoscaled", "engine.start_up=none", "system.instances.both=2"),
}


def test_by_hand() -> None:
    # Two instances of 100 blocks: nobody blocked; 60 in pieces of 30 and 40; 80 that would not fit at all.
    heads = np.array([[20.0, 0.0], [60.0, 0.0], [80.0, 0.0], [50.0, 45.0]])
    free = np.array([[30.0, 40.0], [30.0, 40.0], [30.0, 40.0], [20.0, 40.0]])
    found = shares_of(heads, free, 200.0)
    assert found["blocked_share"] == 3 / 4
    assert found["fits_share"] == pytest.approx(2 / 3)
    assert found["mean_share"] == pytest.approx((60 + 45) / 200 / 4)
    assert found["max_share"] == pytest.approx(60 / 200)


def test_memory_that_nobody_waits_for_is_not_fragmented() -> None:
    found = shares_of(np.zeros((3, 2)), np.full((3, 2), 50.0), 200.0)
    assert found == {"blocked_share": 0.0, "fits_share": None, "mean_share": 0.0, "max_share": 0.0}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("world", QUEUES)
def test_heads_are_those_of_the_queues(world: str, exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at after every event: who heads each queue, and how many blocks it needs."""
    seen: dict[int, list[tuple[int, int]]] = {}
    came_back = set[int]()
    found: list[tuple[np.ndarray, np.ndarray]] = []

    class Looking(SeriesSink):
        def write(self, now_ns, event, actions, told=()):  # type: ignore[no-untyped-def]
            super().write(now_ns, event, actions)
            for id, engine in self.engines.items():
                head = next(iter((*engine.waiting, *engine.unseen_arrivals)), None)
                blocks = 0 if head is None else -(-head.known_tokens // engine.ledger.block_tokens)
                seen.setdefault(id, [(-1, 0)]).append((now_ns, blocks))
                if head is not None and head.was_preempted and len(engine.waiting) > 1:
                    came_back.add(head.id)

    def heads_of(grid, sink):  # type: ignore[no-untyped-def]
        found.append((grid.instants_ns, _heads(grid, sink)))
        return found[0][1]

    _heads = fragmentation._heads
    monkeypatch.setattr("servetwin.results.series_sink.SeriesSink", Looking)
    monkeypatch.setattr(fragmentation, "_heads", heads_of)
    execute(prepare(load_config([*QUEUES[world], "out=unused", f"engine.exact={exact}"], "simulate")))
    ((instants_ns, heads),) = found
    assert came_back, "a preempted request heads a queue before others"
    for column, looks in enumerate(seen[id] for id in sorted(seen)):
        times, blocks = np.array(looks).T
        at = np.searchsorted(times, instants_ns, side="right") - 1
        np.testing.assert_array_equal(heads[:, heads.shape[1] - len(seen) + column], blocks[at])


def test_a_crowded_run_tells_it_and_one_without_series_does_not(tmp_path: Path) -> None:
    assert cli.run(["simulate", "system=infaas_pp", *WORDS, f"out={tmp_path / 'a'}"]) == 0
    found = json.loads((tmp_path / "a" / "summary.json").read_text(encoding="utf-8"))["fragmentation"]
    assert 0 < found["blocked_share"] < 1 and found["fits_share"] > 0.5
    assert 0 < found["mean_share"] <= found["max_share"] < 1
    words = [word for word in WORDS if not word.startswith(("series", "trace.requests"))]
    few = [*words, "trace.requests=20", f"out={tmp_path / 'b'}"]
    assert cli.run(["simulate", "system=infaas_pp", *few]) == 0
    assert "fragmentation" not in json.loads((tmp_path / "b" / "summary.json").read_text(encoding="utf-8"))
