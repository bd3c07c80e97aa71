"""Runs on a profile of whole steps, and on an overhead fitted to one: no edit of the package is needed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from hwmodels.errors import HardwareError
from hwmodels.profiles.profile_file import save_profile
from servetwin.cli import main as cli
from servetwin.cli.profile import profile
from servetwin.config.compose.resolved import load_resolved
from serving.vocabulary.errors import UserError
from tests.worlds.step_profiles import STAMP, folder, grid, law_s
from tests.worlds.toy_profile import toy_profile

SMALL = (
    "cluster=a100_x2", "trace=azure_conv_like", "trace.requests=40", "trace.rate_per_s=40",
    "trace.tokens_scale=0.3", "engine.max_num_seqs=32", "engine.max_num_batched_tokens=512",
    "engine.max_model_len=2048", "engine.max_new_tokens=512", "engine.kv_tokens=16000",
)  # fmt: skip
OVERHEAD = {
    "step_s": 4e-4, "per_layer_s": 0.0, "per_sequence_s": 1e-5, "cuda_graphs": True, "error_s": 1e-4,
    "source": "fitted by hand",
}  # fmt: skip


def run(target: Path, *words: str) -> dict[str, Any]:
    assert cli.run(["simulate", *SMALL, f"out={target}", *words]) == 0
    summary: dict[str, Any] = json.loads((target / "summary.json").read_text())
    return summary


def refused(capsys: pytest.CaptureFixture[str], target: Path, *words: str) -> str:
    capsys.readouterr()
    assert cli.run(["simulate", *SMALL, f"out={target}", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and not target.exists()
    return err


@pytest.mark.parametrize("rung", ["auto", "whole_step"])
def test_a_run_takes_its_steps_from_a_folder(tmp_path: Path, rung: str) -> None:
    path = folder(tmp_path / "steps")
    summary = run(tmp_path / "run", f"engine.profile={path}", f"engine.step_time={rung}", "journal=true")
    step = summary["step_time"]
    assert step["kind"] == "whole steps" and step["error_band"].startswith("decode 0.0 / 0.0 %")
    assert step["overhead"]["source"] == "none: the measured times are of whole steps"
    assert step["overhead"]["step_s"] == 0.0
    assert [file["name"] for file in step["profile"]["files"]] == ["meta.yaml", "steps.csv"]
    assert "inside the measured steps" in summary["range_rests_on"] and summary["range"]
    assert summary["requests"]["finished"] == 40
    assert cli.run(["replay", str(tmp_path / "run")]) == 0


def test_a_lone_request_takes_the_measured_times(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,512,100\n")
    words = ("trace=file", f"trace.path={tmp_path / 't.csv'}", f"engine.profile={folder(tmp_path / 'steps')}")
    kept = tuple(word for word in SMALL if not word.startswith("trace"))
    bare = ("engine.asynchronous=false", "engine.front_end=none")
    assert cli.run(["simulate", *kept, f"out={tmp_path / 'run'}", *words, *bare]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    decode_s = sum(law_s(0, 0, 0, 1, 512 + at) for at in range(1, 100))
    assert summary["ttft_ms"]["mean"] == pytest.approx(1e3 * law_s(512, 1, 0, 0, 0), rel=1e-6)
    assert summary["tpot_ms"]["mean"] == pytest.approx(1e3 * decode_s / 99, rel=1e-6)


def test_coalesced_and_step_by_step_runs_agree(tmp_path: Path) -> None:
    path = folder(tmp_path / "steps")
    for name, exact in (("one", "false"), ("each", "true")):
        run(tmp_path / name, f"engine.profile={path}", f"engine.exact={exact}")
    one, each = ((tmp_path / name / "requests.parquet").read_bytes() for name in ("one", "each"))
    assert one == each


@pytest.mark.parametrize(
    ("stamp", "told"),
    [
        ({"gpu": "h100"}, "measured on h100, and the run has a100_80g"),
        ({"llm": "llama2_7b"}, "measured for llama2_7b"),
        ({"tp": 2}, "measured at tp=2"),
        ({"engine_version": "0.18.0"}, "it is stale: measured with vllm 0.18.0"),
    ],
)
def test_a_folder_of_something_else_is_refused_and_may_be_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stamp: dict[str, Any], told: str
) -> None:
    path = folder(tmp_path / "steps", stamp=replace(STAMP, **stamp))
    assert told in refused(capsys, tmp_path / "run", f"engine.profile={path}")
    forced = run(tmp_path / "run", f"engine.profile={path}", "engine.profile_force=true")
    assert told in forced["step_time"]["profile"]["forced"][0]


@pytest.mark.parametrize("rung", ["op_table", "linear", "calibrated_roofline"])
def test_other_rungs_are_not_made_of_whole_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rung: str
) -> None:
    words = (f"engine.profile={folder(tmp_path / 'steps')}", f"engine.step_time={rung}")
    assert "cannot use a profile of whole steps" in refused(capsys, tmp_path / "run", *words)


def test_sums_of_operations_get_the_overhead_and_a_label(tmp_path: Path) -> None:
    path = folder(tmp_path / "steps", includes_overhead=False)
    step = run(tmp_path / "run", f"engine.profile={path}")["step_time"]
    assert step["overhead"]["step_s"] > 0
    assert step["labels"] == ["step times are sums of operations, not measured steps"]


def test_a_folder_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert profile(["check", f"path={folder(tmp_path / 'steps')}"]) == 0
    text = capsys.readouterr().out
    for line in (
        "llama3_8b on a100_80g tp=1", "holds: whole steps", "decode: 24 steps, sequences 1 to 32",
        "prefill: 15 steps", "mixed: 4 steps", "repeats of one step: no step comes twice",
        "answers: up to 32 decoding sequences", "| decode | 28 | 0 | 0.0 | 0.0 |",
    ):  # fmt: skip
        assert line in text


def test_an_overhead_is_fitted_printed_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = folder(tmp_path / "steps", grid(lambda *step: 0.5 + law_s(*step)))
    assert profile(["fit", f"path={steps}", "against=linear"]) == 0
    text = capsys.readouterr().out
    assert "#   prefill: 15 steps" in text and "#   decode: 24 steps" in text and "held out" in text
    made = yaml.safe_load(text)
    assert made["step_s"] > 0.4 and made["error_s"] > 0 and "24 measured steps of llama3_8b" in made["source"]
    (tmp_path / "o.yaml").write_text(text)
    summary = run(tmp_path / "run", f"engine.overhead={tmp_path / 'o.yaml'}", "engine.step_time=linear")
    told = summary["step_time"]["overhead"]
    assert told["step_s"] == made["step_s"] and told["source"] == f"{made['source']} (o.yaml)"
    assert "fitted" in summary["range_rests_on"]


def test_an_overhead_of_a_file_is_in_the_saved_configuration(tmp_path: Path) -> None:
    (tmp_path / "o.yaml").write_text(yaml.safe_dump(OVERHEAD))
    run(
        tmp_path / "run",
        f"engine.overhead={tmp_path / 'o.yaml'}",
        "engine.overhead.step_s=0.001",
        "journal=true",
    )
    saved = load_resolved(tmp_path / "run" / "config.yaml").engine.overhead
    assert (saved.step_s, saved.per_sequence_s, saved.error_s) == (0.001, 1e-5, 1e-4)
    assert saved.source == f"command line, instead of engine.overhead={tmp_path / 'o.yaml'}"
    assert cli.run(["replay", str(tmp_path / "run")]) == 0


def test_runs_without_a_fitted_overhead_save_no_error_of_it(tmp_path: Path) -> None:
    run(tmp_path / "run", "engine=vllm_v0")
    assert "error_s" not in (tmp_path / "run" / "config.yaml").read_text()
    assert load_resolved(tmp_path / "run" / "config.yaml").engine.overhead.error_s is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"step_s": -1.0}, "step_s in"),
        ({"step_s": "fast"}, "step_s"),
        ({"steps": 1}, "unknown key steps"),
        ({"source": None}, "source"),
    ],
)
def test_a_file_that_is_no_overhead_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], told: str
) -> None:
    (tmp_path / "o.yaml").write_text(yaml.safe_dump(OVERHEAD | change))
    err = refused(capsys, tmp_path / "run", f"engine.overhead={tmp_path / 'o.yaml'}")
    assert told in err and "o.yaml" in err
    assert "cannot be read" in refused(capsys, tmp_path / "run", f"engine.overhead={tmp_path / 'none'}")


def test_what_cannot_be_fitted_is_refused(tmp_path: Path) -> None:
    steps = folder(tmp_path / "steps")
    with pytest.raises(UserError, match="against=FILE"):
        profile(["fit", f"path={steps}"])
    tables = tmp_path / "ops.json"
    save_profile(replace(toy_profile(skew=None), stamp=replace(STAMP, gpu="h100")), tables)
    with pytest.raises(UserError, match=r"has no meta\.yaml"):
        profile(["fit", f"path={tables}", "against=linear"])
    with pytest.raises(HardwareError, match="measured on h100, and the run has a100_80g"):
        profile(["fit", f"path={steps}", f"against={tables}"])
