"""Auto-scaled systems through the product: whose requests migrate, that instance is soon empty."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from servetwin.cli import main as cli

WORDS = [
    "cluster=llumnix_2x1", "model=llama_7b", "engine=vllm_0_1_7", "engine.max_num_batched_tokens=12800",
    "engine.start_up=none", "trace=file", "uncertainty=off", "overwrite=true", "journal=true",
]  # fmt: skip
# One request on each of two instances, which at the first look, after 10 s, have room for 60 blocks each.
ROWS = ((0.0, 500, 600), (2.0, 500, 600))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """The summary of a run and its requests; each is made once and replayed."""
    folder = tmp_path_factory.mktemp("autoscaled")
    trace = folder / "trace.csv"
    lines = ["arrival_s,prompt_tokens,output_tokens", *(",".join(map(str, row)) for row in ROWS)]
    trace.write_text("\n".join(lines) + "\n")

    @cache
    def made(*words: str) -> tuple[dict[str, Any], bytes]:
        out = folder / "_".join(words).replace("=", "_")
        assert cli.run(["simulate", *WORDS, *words, f"trace.path={trace}", f"out={out}"]) == 0
        assert cli.run(["replay", str(out)]) == 0
        summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
        assert summary["requests"]["finished"] == len(ROWS)
        return summary, (out / "requests.parquet").read_bytes()

    return made


def drained_s(summary: dict[str, Any]) -> tuple[float, float]:
    """When an instance was told to go, and how long it took."""
    at_s = {event["act"]: event["t_s"] for event in summary["scale_events"]}
    return at_s["drain"], at_s["released"] - at_s["drain"]


def test_an_instance_that_is_to_go_sends_its_requests_away_and_else_finishes_them(run) -> None:  # type: ignore[no-untyped-def]
    moved, stayed = (run(f"system={name}_autoscaled")[0] for name in ("llumnix_base", "infaas_pp"))
    assert drained_s(moved)[0] == drained_s(stayed)[0] == 10
    assert drained_s(moved)[1] < 1 < 5 < drained_s(stayed)[1]
    assert moved["migrations"]["committed"] == 1 and "migrations" not in stayed


def test_a_run_step_by_step_is_the_same(run) -> None:  # type: ignore[no-untyped-def]
    words = ("system=llumnix_base_autoscaled",)
    assert run(*words, "engine.exact=true")[1] == run(*words)[1]


def test_refusals_say_what_to_write(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,5,5\n")
    base = ["simulate", *WORDS, f"trace.path={trace}", f"out={tmp_path / 'out'}"]
    for words, told in (
        (["system=llumnix_base_autoscaled", "system.instances.queue=common"], "queue=per_instance"),
        (["system=infaas_pp_autoscaled", "system.instances.monitor_period_ms=10"], "write a longer one"),
        (["system=infaas_pp", "system.instances.both=1"], "leave it out"),
    ):
        assert cli.run([*base, *words]) == 2
        assert told in " ".join(capsys.readouterr().err.split())
