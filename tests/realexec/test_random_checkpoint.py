"""``realexec random-checkpoint``: a folder that runs as a trained model's does."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from realexec.model.model_runner import ModelRunner
from realexec.model.models import model_spec
from servetwin.cli.realexec import run

pytestmark = pytest.mark.real
WORDS = ("random-checkpoint", "model=tiny_llama", "model.dtype=bfloat16")


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    spec = model_spec({"checkpoint": str(folder), "dtype": "bfloat16"})
    source = spec.source(0)
    return {
        name: source.read(name, tuple(one.shape)).clone() for name, one in spec.skeleton().named_parameters()
    }


def test_a_run_computes_with_what_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "made"
    assert run([*WORDS, "spread=0.1", f"out={out}"]) == 0
    assert f"write model.checkpoint={out}" in capsys.readouterr().out
    tensors = tensors_of(out)
    size_bytes = sum(one.nbytes for one in tensors.values())
    assert 0 < (out / "model.safetensors").stat().st_size - size_bytes < 10_000
    assert {one.dtype for one in tensors.values()} == {torch.bfloat16}
    for name, one in tensors.items():
        assert one.float().std() == pytest.approx(0.1, rel=0.3)
        assert one.float().mean() == pytest.approx(float(name.endswith("norm.weight")), abs=0.05)
    runner = ModelRunner({"checkpoint": str(out), "dtype": "bfloat16"}, 0, 2)
    kv = runner.new_kv(4)
    assert 0 <= runner.sample(runner.prefill([1, 2, 3], 0, 3, kv)) < runner.spec.config.vocab_size
    words = ["run", *WORDS[1:], f"model.checkpoint={out}", "workers=1", "trace.limit=2"]
    assert run([*words, "trace.tokens_scale=0.02", f"out={tmp_path}/run"]) == 0
    real = json.loads((tmp_path / "run" / "summary.json").read_text())["real"]
    assert real["tokens_checked"] > 0 == real["tokens_different"]


def test_the_seed_says_which_parameters(tmp_path: Path) -> None:
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        assert run([*WORDS, f"seed={seed}", f"out={tmp_path / name}"]) == 0
    one, same, other = (tensors_of(tmp_path / name) for name in ("one", "same", "other"))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in one)


def test_nothing_is_overwritten_or_left_half_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run([*WORDS, f"out={tmp_path}"]) == 2 and "exists: write the name" in capsys.readouterr().err
    there = f"model.checkpoint={tmp_path}"
    assert run([*WORDS, there, f"out={tmp_path / 'x'}"]) == 2 and "leave it out" in capsys.readouterr().err

    def fails(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("safetensors.torch.save_file", fails)
    assert run([*WORDS, f"out={tmp_path / 'x'}"]) == 2 and "the disk is full" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
