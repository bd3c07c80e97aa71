"""Llumnix's systems through the product: a request that waits is admitted because a running one moved."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from servetwin.cli import main as cli

WORDS = [
    "cluster=llumnix_2x1", "model=llama_7b", "engine=vllm_0_1_7", "engine.max_num_batched_tokens=12800",
    "engine.max_model_len=12800", "engine.max_new_tokens=6144", "trace=file", "uncertainty=off",
    "overwrite=true", "journal=true",
]  # fmt: skip
# Two instances of 851 blocks, of which two requests of 188 and more each run on both; the fifth wants 500.
ROWS = ((0.0, 3000, 600), (0.2, 3000, 600), (1.5, 3000, 600), (3.0, 3000, 600), (6.0, 8000, 50))
LARGE = len(ROWS) - 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("llumnix")


@pytest.fixture(scope="module")
def run(folder: Path):  # type: ignore[no-untyped-def]
    """(summary, TTFT of the large request in seconds) of a run; each is made once."""
    trace = folder / "trace.csv"
    lines = ["arrival_s,prompt_tokens,output_tokens", *(",".join(map(str, row)) for row in ROWS)]
    trace.write_text("\n".join(lines) + "\n")

    @cache
    def made(*words: str) -> tuple[dict[str, Any], float]:
        import pyarrow.parquet as parquet

        out = folder / "_".join(words).replace("=", "_")
        assert cli.run(["simulate", *WORDS, *words, f"trace.path={trace}", f"out={out}"]) == 0
        rows = parquet.read_table(out / "requests.parquet").to_pydict()
        summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
        assert summary["requests"]["finished"] == len(ROWS)
        assert cli.run(["replay", str(out)]) == 0
        return summary, rows["ttft_ms"][rows["request"].index(LARGE)] / 1000

    return made


@pytest.mark.parametrize(("rule", "migrations"), [("shipped", 1), ("paper", 4)])
def test_a_request_that_waits_is_admitted_because_a_running_one_moved(
    run, rule: str, migrations: int
) -> None:  # type: ignore[no-untyped-def]
    """As printed another one moves while the large prompt is computed: that it waits no more is told at the
    end of that step. Those two go back when the large one has ended.
    """
    _, waits_s = run("system=infaas_pp")
    summary, moved_s = run("system=llumnix_base", f"system.migration.rule={rule}")
    assert summary["migrations"]["committed"] == migrations
    assert moved_s < 6 < 15 < waits_s


def test_the_story_tells_it(run, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    run("system=llumnix_base", "system.migration.rule=shipped")
    capsys.readouterr()
    out = folder / "system_llumnix_base_system.migration.rule_shipped"
    assert cli.run(["story", str(out), "request=3"]) == 0
    told = capsys.readouterr().out
    assert "freeness -" in told and "its migration from instance 1 to 0 is complete" in told


def test_without_the_heads_demand_nobody_moves_for_it(run) -> None:  # type: ignore[no-untyped-def]
    """The negative control of de-fragmentation."""
    summary, waits_s = run("system=llumnix_base", "system.migration.defragment=false")
    assert summary["migrations"]["committed"] == 0 and waits_s == run("system=infaas_pp")[1]


@pytest.mark.parametrize(("reports_at", "expected"), [("step_ends", [0, 0, 0]), ("changes", [0, 1, 1])])
def test_who_comes_during_a_step_goes_where_the_one_before_went(
    reports_at: str, expected: list[int], folder: Path
) -> None:
    """An instance tells of a prompt when it has computed it; till then others find it as free as before."""
    import pyarrow.parquet as parquet

    trace, out = folder / "herd.csv", folder / f"herd_{reports_at}"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0.0,3000,50\n0.2,100,50\n0.4,100,50\n")
    words = ["system=infaas_pp", f"system.dispatch.reports_at={reports_at}", f"trace.path={trace}"]
    assert cli.run(["simulate", *WORDS, *words, f"out={out}"]) == 0
    rows = parquet.read_table(out / "requests.parquet").to_pydict()
    went = dict(zip(rows["request"], rows["replica"]))
    assert [went[request] for request in range(3)] == expected


def test_as_exact_as_step_by_step(run) -> None:  # type: ignore[no-untyped-def]
    words = "system=llumnix_base", "system.migration.rule=shipped"
    (coalesced, first_s), (exact, second_s) = run(*words), run(*words, "engine.exact=true")
    assert first_s == second_s and coalesced["migrations"] == exact["migrations"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["system=llumnix_base", "migration.period_ms=100"], "reports_age_ms"),
        (
            ["system=infaas_pp", "engine=vllm_v1", "system.dispatch.reports_at=step_ends"],
            "reports_at=changes",
        ),
        (["system=serverlessllm", "system/dispatch=freeness", "cluster=blitz_b"], "load reports"),
    ],
)
def test_reports_that_cannot_be_are_refused(words: list[str], says: str, capsys, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    trace = ["trace=poisson", "trace.requests=5", "trace.rate_per_s=1"]
    cluster = ["cluster=llumnix_2x1", "model=llama_7b"] if "cluster=blitz_b" not in words else []
    assert cli.run(["simulate", *cluster, *trace, *words, f"out={tmp_path / 'out'}"]) == 2
    assert says in capsys.readouterr().err and not (tmp_path / "out").exists()


FIGURE_13 = [
    "simulate", "trace=llumnix_ss", "trace.rate_per_s=26", "trace.gap_cv=8", "trace.requests=1500",
    "trace.high_priority_share=0.1", "engine=vllm_0_1_7", "engine.max_num_batched_tokens=12000",
    "engine.max_model_len=12800", "engine.max_new_tokens=6144", "cluster=llumnix", "model=llama_7b",
    "uncertainty=off",
]  # fmt: skip


def test_high_priority_requests_are_served_sooner_and_the_others_hardly_later(tmp_path: Path) -> None:
    """The direction of Figure 13, at its largest CV and a seventh of its requests."""
    found = {}
    for system in ("llumnix", "llumnix_base"):
        out = tmp_path / system
        assert cli.run([*FIGURE_13, f"system={system}", f"out={out}"]) == 0
        high, normal = json.loads((out / "summary.json").read_text())["priorities"]
        assert (high["priority"], normal["priority"]) == (1, 0)
        assert high["finished"] + normal["finished"] == 1500 and 100 < high["requests"] < 200
        found[system] = high, normal
    (high, normal), (base_high, base_normal) = found["llumnix"], found["llumnix_base"]
    assert high["e2e_ms"]["mean"] < 0.9 * base_high["e2e_ms"]["mean"]
    assert high["ttft_ms"]["p99"] < 0.5 * base_high["ttft_ms"]["p99"]
    assert normal["e2e_ms"]["mean"] < 1.1 * base_normal["e2e_ms"]["mean"]
