"""servetwin compare SIM REAL REAL: the same steps and sends, real and simulated, by kind."""

import json
from pathlib import Path
from typing import Any

import pytest

from servetwin.cli import main as cli
from servetwin.cli.compare_repeats import work_lines
from servetwin.compare.step_times import WorkRow, send_rows
from tests.worlds.calibrations import law_us, profile

WORDS = (
    "simulate", "model=tiny_llama", "engine=own_workers", "engine.max_num_seqs=8",
    "engine.max_num_batched_tokens=256", "engine.kv_tokens=16384", "uncertainty=off",
    "trace=azure_conv_like", "trace.limit=30", "trace.tokens_scale=0.1", "trace.rate_per_s=25",
    "journal=true",
)  # fmt: skip
STATIC = ("cluster=local", "cluster.gpus=2")


def run(folder: Path, slower: float, *words: str, real: bool = False) -> Path:
    """A simulation whose steps take ``slower`` times what the law says; ``real``: marked as such."""
    steps = folder.with_name(f"{folder.name}.steps")
    profile(steps, lambda *of: slower * law_us(*of), 1.0)
    assert cli.run([*WORDS, f"engine.profile={steps}", f"out={folder}", *words]) == 0
    if real:
        summary = json.loads((folder / "summary.json").read_text())
        summary["real"] = summary.pop("sim")
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def work(capsys: pytest.CaptureFixture[str], *places: Path) -> dict[str, Any]:
    capsys.readouterr()
    cli.run(["compare", *map(str, places), "json=true"])
    return json.loads(capsys.readouterr().out)["work"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("slower", [1.0, 1.25])
def test_every_kind_of_step_tells_by_how_much_the_model_is_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], slower: float
) -> None:
    """Whatever came before: the steps are priced as they were run."""
    real = [run(tmp_path / name, slower, *STATIC, real=True) for name in ("a", "b")]
    found = work(capsys, run(tmp_path / "sim", 1.0, *STATIC), *real)
    kinds = {row["kind"]: row for row in found["steps"]}
    assert {"decodes alone", "part of a prompt beside decodes", "prompts, then decodes"} <= kinds.keys()
    for row in kinds.values():
        assert row["ratio"] == pytest.approx(1 / slower, rel=1e-3), row
    assert found["sends"] == []


def journal(folder: Path, *took_ms: int) -> Path:
    """KV that is sent again and again, 1,000 bytes a time; the last send is stopped."""
    folder.mkdir()
    lines, at_ns = ["{}"], 0
    for number, one in enumerate(took_ms):
        action = ["send", number, "kv", [1], 0, 1, 1000, "least demand"]
        lines.append(json.dumps([at_ns, ["woke"], [action]]))
        at_ns += one * 10**6
        last = number == len(took_ms) - 1
        lines.append(
            json.dumps([at_ns, ["sent", number, 0 if last else 1000, "stopped" if last else ""], []])
        )
    (folder / "journal").write_text("\n".join([*lines, "{}"]) + "\n")
    return folder


def test_sends_that_came_whole_are_told_of_both(tmp_path: Path) -> None:
    sim = journal(tmp_path / "sim", 10, 30, 99)
    real = [journal(tmp_path / "a", 40, 60, 99), journal(tmp_path / "b", 20, 99)]
    assert send_rows(sim, real) == [WorkRow("kv", 3, 3000, 40.0, 20.0)]
    text = "\n".join(work_lines(sim, real))
    assert "step times by kind are not told" in text, "no configuration lies there"
    assert "kv  3,000  20.0 ms    40.0 ms  0.50" in text


def test_a_profile_that_is_gone_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    real = [run(tmp_path / name, 1.0, *STATIC, real=True) for name in ("a", "b")]
    sim = run(tmp_path / "sim", 1.0, *STATIC)
    (tmp_path / "sim.steps" / "steps.csv").unlink()
    assert work(capsys, sim, *real)["steps"] is None
    cli.run(["compare", *map(str, (sim, *real))])
    assert "step times by kind are not told: " in capsys.readouterr().out
