"""The check of a GPU: what becomes of steps that pass, fail, run too long or lack what they need."""

import json
from pathlib import Path

import pytest

from benchmarks import gpu
from benchmarks.gpu import CheckStep, carried_out, steps_of
from serving.vocabulary.errors import UserError

STEPS = (
    CheckStep("good", ("-c", "print('all well')"), 60),
    CheckStep("bad", ("-c", "raise SystemExit('no GPU')"), 60),
    CheckStep("slow", ("-c", "import time; print('begun', flush=True); time.sleep(60)"), 1.0),
    CheckStep("after", ("-c", "print('never')"), 60, needs="bad"),
    CheckStep("other", ("-c", "print('last')"), 60, needs="good"),
)


def test_each_step_ends_for_itself(tmp_path: Path) -> None:
    results = carried_out(STEPS, tmp_path, 600)
    assert [one.status for one in results] == [
        "passed", "failed with exit status 1", "stopped after 1 s", "left out: bad did not pass", "passed",
    ]  # fmt: skip
    assert [one.last for one in results] == [("all well",), ("no GPU",), ("begun",), (), ("last",)]
    told = json.loads((tmp_path / "results.json").read_text())
    assert [one["name"] for one in told["steps"]] == [step.name for step in STEPS] and told["machine"]
    page = (tmp_path / "page.md").read_text()
    assert "| slow | 1 s | stopped after 1 s |" in page and "no GPU" in page


def test_a_run_in_which_nothing_moved_has_shown_nothing(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    real = {"loads": 1, "live_passes": 0, "tokens_checked": 5}
    (tmp_path / "run/summary.json").write_text(json.dumps({"real": real}))
    results = [
        gpu.run_step(CheckStep("run", ("-c", ""), 60, counts=counts), tmp_path / "log.txt", 60)
        for counts in (("loads", "tokens_checked"), gpu.SCALED)
    ]
    assert [one.status for one in results] == ["passed", "ran, and shows nothing: live_passes 0"]
    assert results[0].real == real


def test_no_step_begins_when_no_time_is_left(tmp_path: Path) -> None:
    assert [one.status for one in carried_out(STEPS[:1], tmp_path, 0)] == ["left out: no time was left"]


def test_a_checkpoint_that_is_given_is_not_written(tmp_path: Path) -> None:
    given = steps_of(tmp_path, ["model=tiny_llama", f"model.checkpoint={tmp_path}"])
    assert [one.name for one in given if one.name == "checkpoint" or one.needs == "checkpoint"] == []
    first, scaling, *_ = steps_of(tmp_path, ["cluster.gpu=h200", "model=none_like_it"])
    assert first.name == "checkpoint" == scaling.needs and "out=models/none_like_it" in first.words
    assert "cluster.gpu=h200" in scaling.words and "model.checkpoint=models/none_like_it" in scaling.words


def test_words_that_are_wrong_are_refused(tmp_path: Path) -> None:
    for words, said in (
        (["steps=tests"], "there is no out=DIR"),
        (["tests"], "'tests' is not KEY=VALUE"),
        ([f"out={tmp_path}"], "exists"),
        ([f"out={tmp_path}/a", "steps=test"], "there is no step 'test'"),
        ([f"out={tmp_path}/a", "minutes=x"], "number of minutes"),
    ):
        with pytest.raises(UserError, match=said):
            gpu.main(words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real
def test_the_steps_of_a_small_model_pass_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands themselves; device=apart copies like a GPU.

    The requests of a GPU would find a quick core idle: more come here, so that prompts wait.
    """
    more = {"trace.limit": "120", "trace.rate_per_s": "400"}
    scaling = dict(word.split("=", 1) for word in gpu.SCALING) | more
    monkeypatch.setattr(gpu, "SCALING", tuple(f"{key}={text}" for key, text in scaling.items()))
    keys = ["device=apart", "model=tiny_llama", "model.dtype=float32", "cluster.gpu=h100"]
    keys.append("cluster.nic_gbps=0.2")  # 16 MB in 0.6 s: layers come one by one, as on a GPU
    folder = tmp_path / "parameters"
    written, *_ = steps_of(tmp_path, [*keys, f"model.checkpoint={folder}"])
    words = [f"out={tmp_path}/out", "steps=scaling,replay", *keys, f"model.checkpoint={folder}"]
    assert carried_out([written], tmp_path, 120)[0].status == "passed"
    assert gpu.main(words) == 0
    told = json.loads((tmp_path / "out/results.json").read_text())["steps"]
    assert told[0]["real"]["tokens_different"] == 0 < told[0]["real"]["loads"]
    assert told[1]["last"][-1].endswith(", 0 differ")
