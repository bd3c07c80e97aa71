"""servetwin support: what it prints of a combination, and how it refuses what cannot be simulated."""

import json
from pathlib import Path

import pytest

from hwmodels.catalogue import gpu_names, llm_names, load_gpu, load_llm
from hwmodels.errors import HardwareError
from hwmodels.models.kv_capacity import kv_capacity
from hwmodels.models.vllm_memory import EngineLimits
from hwmodels.step_times import library_step
from hwmodels.step_times.select import step_model
from hwmodels.step_times.step_time import Piece, StepLimits
from servetwin.cli.support import support
from servetwin.config.compose.compose import load_config, option_groups
from servetwin.config.vllm_defaults import batch_defaults
from servetwin.support.rungs import Rung, chosen_rung, decode_s, ladder, prefill_s, rungs_of
from servetwin.support.table import listing, table
from serving.vocabulary.errors import UserError
from tests.worlds.measured_profile import measured, section

SECTIONS = (
    "model",
    "gpu",
    "step times",
    "ladder",
    "kv memory",
    "engine",
    "known how",
    "start",
    "sample times",
)


class Toy:
    """1 ms per step, 1 us per token of the batch; attention bends at 5000 tokens of context."""

    limits = StepLimits(8, 10_000, 2048, 4096)
    source = "toy"
    error_band = "none"
    interplay = None

    def dense_s(self, prefill_tokens: int, prefill_sequences: int, decode_sequences: int) -> float:
        return 1e-3 + 1e-6 * (prefill_tokens + decode_sequences)

    def decode_attention(self, decode_sequences: int) -> tuple[Piece, ...]:
        return (Piece(5_000, 0.0, 1e-7), Piece(10_000, 1e-3, 2e-7))

    def prefill_attention_s(self, new_tokens: int, cached_tokens: int) -> float:
        return 5e-4


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert support(words) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("gpu", "model", "tp", "rung"),
    [
        ("a100_80g", "llama3_8b", 1, "linear"),
        ("a100_80g", "qwen2_5_72b", 4, "linear"),
        ("l40s", "llama2_13b", 1, "roofline"),
        ("h100", "opt_66b", 4, "roofline"),
    ],
)
def test_one_combination(
    capsys: pytest.CaptureFixture[str], gpu: str, model: str, tp: int, rung: str
) -> None:
    text = printed(capsys, f"model={model}", f"gpu={gpu}", f"tp={tp}")
    assert text.startswith(f"{model} on {tp} x {gpu}, engine vllm_v1\n")
    step = step_model("auto", load_gpu(gpu), load_llm(model), tp=tp)
    times = section(text, "step times")
    assert times.startswith(f"{rung}, because no op_table") and " ".join(step.error_band.split()) in times
    assert f"{step.limits.max_decode_sequences} decoding sequences" in times
    assert f"{step.limits.max_context_tokens} tokens of context" in times
    assert f"{rung}: available, used" in section(text, "ladder")
    limits = EngineLimits(version="0.19.0", **batch_defaults(load_gpu(gpu), "openai_api_server"))
    capacity = kv_capacity(
        load_gpu(gpu), load_llm(model), tp=tp, memory_utilization=0.9, block_tokens=16, limits=limits
    )
    memory = section(text, "kv memory")
    assert memory.startswith(f"{capacity.tokens - 16} tokens {capacity.arithmetic}; 1 of the blocks")
    assert "MiB context of CUDA + " in memory
    assert "us per sequence, small batches padded to the captured sizes; source: " in section(text, "engine")


def test_sample_times_have_the_overhead_of_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    engine = load_config(["model=llama3_8b", "out=x"], "simulate").engine.overhead
    step = step_model("auto", load_gpu("a100_80g"), load_llm("llama3_8b"), tp=1)
    added_s = engine.step_s + 32 * engine.per_layer_s
    prefill = step.dense_s(1024, 1, 0) + step.prefill_attention_s(1024, 0) + added_s + engine.per_sequence_s
    (piece, *_) = step.decode_attention(32)
    decode = step.dense_s(0, 0, 32) + piece.intercept_s + piece.slope_s_per_token * 32 * 1024
    decode += added_s + 32 * engine.per_sequence_s
    text = printed(capsys, "model=llama3_8b", "gpu=a100_80g", "tp=1")
    samples = section(text, "sample times")
    assert f"prefill of 1024 tokens {prefill * 1e3:.3f} ms" in samples
    assert f"decode of 32 at context 1024 {decode * 1e3:.3f} ms" in samples
    assert section(text, "engine").startswith(f"{added_s * 1e3:g} ms added to every step")


def test_every_line_is_short_and_every_section_there(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "model=qwen2_5_72b", "gpu=rtx_pro_6000", "tp=4", "engine=vllm_v0")
    assert [line.split("  ")[0] for line in text.splitlines()[1:] if line[:1].strip()] == list(SECTIONS)
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "engine vllm_v0" in text


def test_a_rung_that_is_missing_says_what_to_measure(capsys: pytest.CaptureFixture[str]) -> None:
    rungs = section(printed(capsys, "model=mistral_24b", "gpu=a800", "tp=1"), "ladder")
    assert "op_table: not available; no profile is given; measure the layers of mistral_24b on a800" in rungs
    assert "path=FOLDER gpu=a800 model=mistral_24b tp=1 out=FILE" in rungs
    assert "linear: not available; hwmodels/catalogue/linear.yaml has no coefficients for gpu=a800" in rungs


def test_a_profile_is_the_best_rung(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = measured(tmp_path)
    text = printed(capsys, "model=mistral_24b", "gpu=h200", "tp=1", f"profile={path}")
    assert section(text, "step times").startswith("op_table, the best rung there is source:")
    assert "made up" in section(text, "step times")
    assert "does not fit" not in text
    older = printed(capsys, "model=mistral_24b", "gpu=h200", f"profile={path}", "engine=vllm_v0")
    assert "the profile does not fit: it is stale: measured with vllm 0.19.0" in section(older, "step times")
    assert "engine.profile_force=true" in section(older, "step times")
    assert section(text, "ladder").startswith("op_table: available, used linear: available")


def test_a_foreign_profile_is_told_and_a_broken_one_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = measured(tmp_path)
    foreign = section(printed(capsys, "model=opt_13b", "gpu=h200", "tp=1", f"profile={path}"), "step times")
    assert "it was measured for mistral_24b, and the run serves opt_13b" in foreign
    assert "engine.profile_force=true" in foreign
    path.write_text("{}")
    with pytest.raises(HardwareError, match=r"profile\.json"):
        support(["model=mistral_24b", "gpu=h200", "tp=1", f"profile={path}"])


def test_without_tp_the_smallest_that_fits_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "model=llama_30b", "gpu=a10")
    assert text.startswith("llama_30b on 4 x a10 (the smallest tp that fits), engine vllm_v1\n")


@pytest.mark.parametrize("engine", option_groups()["engine"])
def test_every_engine_is_understood(capsys: pytest.CaptureFixture[str], engine: str) -> None:
    text = printed(capsys, "model=llama3_8b", "gpu=a100_80g", f"engine={engine}")
    assert f", engine {engine}\n" in text and "us per sequence" in section(text, "engine")


def test_words_of_other_commands_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    here = printed(capsys, "model=llama3_8b", "gpu=a100_80g", "tp=2")
    assert printed(capsys, "model=llama3_8b", "cluster.gpu=a100_80g", "model.tp=2") == here


def test_a_config_json_is_a_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "intermediate_size": 5632,
        "max_position_embeddings": 2048, "num_attention_heads": 32, "num_hidden_layers": 22,
        "num_key_value_heads": 4, "torch_dtype": "bfloat16", "vocab_size": 32000,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    text = printed(capsys, f"model={path}", "gpu=a10", "tp=1")
    assert text.startswith(f"{path} on 1 x a10")
    assert "1.10 billion parameters, 2.20 GB" in section(text, "model")


def test_the_table_has_every_model_and_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys).splitlines()
    heads = [line for line in lines if line.startswith(" ")]
    assert tuple(name for line in heads for name in line.split()) == gpu_names()
    assert tuple(line.split()[0] for line in lines[1 : 1 + len(llm_names())]) == llm_names()
    of_model = [line.split()[1:] for line in lines if line.startswith("qwen2_5_72b")]
    cells = dict(zip(gpu_names(), [cell for part in of_model for cell in part]))
    assert cells["a100_80g"] == "R2/L4", "linear exists at a larger tp than the smallest"
    assert (cells["cpu_core"], cells["a10"]) == ("-", "R8")
    assert any("R roofline" in line for line in lines)


def test_a_model_or_a_gpu_alone_lists_what_goes_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    listed, _, facts = printed(capsys, "model=llama3_8b").partition("\n\n")
    by_gpu = listed.splitlines()
    assert "8.03 billion parameters" in facts and "131072 bytes of KV per token;" in facts
    assert [line.split()[1] for line in by_gpu[1:]] == list(gpu_names())
    row = next(line for line in by_gpu if " a100_80g " in line).split()
    assert row[:5] == ["llama3_8b", "a100_80g", "1", "linear", "454912"]
    assert next(line for line in by_gpu if " cpu_core " in line).endswith("does not fit on 8")
    by_model = printed(capsys, "gpu=h100").splitlines()
    assert [line.split()[0] for line in by_model[1:]] == list(llm_names())


def test_tables_do_not_ask_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking takes seconds for each combination: a mixture that only the library knows is named unasked."""

    def asked(*combination: object) -> None:
        pytest.fail(f"the library was asked for {combination}")

    monkeypatch.setattr(library_step, "asked_profile", asked)
    monkeypatch.setattr("servetwin.support.table.library_version", lambda: "0.12.0")
    gpus, llm = [load_gpu("h200"), load_gpu("mi300x")], load_llm("minimax_m2_5")
    engine = load_config(["out=x"], "simulate").engine
    assert table(gpus, [llm], engine)[1].split()[1:] == ["A2?", "R2"], "no tables of the MI300X: a roofline"
    assert "not asked here" in listing(gpus, [llm], engine)[1]
    monkeypatch.setattr("servetwin.support.table.library_version", lambda: "")
    assert table(gpus, [llm], engine)[1].split()[1:] == ["-", "R2"], "nothing to ask"


def test_what_a_model_takes_is_told_without_step_times(capsys: pytest.CaptureFixture[str]) -> None:
    text = section(printed(capsys, "model=qwen3_next_80b_a3b"), "model")
    assert "79.67 billion parameters, 159.35 GB at 2 bytes each; a token uses 3.87 billion" in text
    assert "1.65 billion more predict further tokens" in text
    assert "24576 bytes of KV per token and 39518208 per sequence; contexts up to 262144" in text
    published = section(printed(capsys, "model=nvidia/Kimi-K2.5-NVFP4"), "model")
    assert "in bf16 attention, nvfp4 MLP, nvfp4 experts, KV bf16" in published


def test_another_kv_size_of_the_engine_is_shown() -> None:
    engine = load_config(["engine.kv_tokens=1000", "out=x"], "simulate").engine
    rows = listing([load_gpu("a10")], [load_llm("llama_7b")], engine)
    assert rows[1].split()[4] == "976", "62 blocks, one of them reserved"
    assert table([load_gpu("a10")], [load_llm("llama_7b")], engine)[1].split() == ["llama_7b", "R1"]


def test_times_of_a_step() -> None:
    toy = Toy()
    assert prefill_s(toy, 1000) == pytest.approx(1e-3 + 1e-3 + 5e-4)
    assert decode_s(toy, 2, 5000) == pytest.approx(1e-3 + 2e-6 + 5e-4)
    assert decode_s(toy, 2, 5001) == pytest.approx(1e-3 + 2e-6 + 1e-3 + 5001 * 2e-7)
    assert prefill_s(toy, 2049) is None
    assert decode_s(toy, 9, 10) is None and decode_s(toy, 8, 10_001) is None


def test_the_ladder_is_tried_from_the_best_down() -> None:
    gpu, llm = load_gpu("a100_80g"), load_llm("llama3_8b")
    rungs = rungs_of(gpu, llm, 1, None)
    assert tuple(rung.kind for rung in rungs) == ladder() and "auto" not in ladder()
    assert chosen_rung(rungs=rungs, gpu=gpu, llm=llm, tp=1, profile=None) == next(
        rung for rung in rungs if rung.model is not None
    )
    assert Rung("roofline", None, "because").remedy("x", llm, 1) == "because"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("llama3_8b",), "no key=value: write for example servetwin support model="),
        (("model=",), "no key=value"),
        (
            ("gp=h100",),
            "unknown key 'gp' for support: write one of model, gpu, tp, profile, engine, cluster, plot, "
            "overwrite, precision, kv_cache_dtype, gpu=",
        ),
        (("model=llama3_8b", "model=opt_66b"), "model is given twice"),
        (("tp=2", "model.tp=2"), "tp is given twice"),
        (("tp=2", "gpu=h100"), "tp= belongs to one model on one GPU: write both"),
        (("profile=x", "model=opt_66b"), "profile= belongs to one model on one GPU"),
        (("engine=vllm_v2",), "unknown engine 'vllm_v2': write engine=NAME, one of "),
        (("model=llama3_8b", "gpu=h100", "tp=0"), "tp=0 is no number of GPUs: write a whole one"),
        (("model=llama3_8b", "gpu=h100", "tp=" + "9" * 5000), "is no number of GPUs"),
        (("model=llama3_8b", "gpu=h100", "tp=two"), "tp=two is no number of GPUs"),
    ],
)
def test_words_that_cannot_be_used_are_refused(words: tuple[str, ...], expected: str) -> None:
    with pytest.raises(UserError) as refused:
        support(words)
    assert expected in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("model=llama3_8", "gpu=h100"), "write 'llama3_8b' or another of"),
        (("model=llama3_8b", "gpu=h1000"), "write 'h100' (H100 SXM 80 GB) or another of"),
        (("model=llama3_8b", "gpu=h100", "tp=3"), "write one of 1, 2, 4, 8"),
        (("model=llama3_8b", "gpu=h100", "tp=64"), "write one of 1, 2, 4, 8, 16, 32"),
        (("model=qwen2_5_72b", "gpu=a100_80g", "tp=1"), "write model.tp=2, the smallest that fits"),
        (("model=opt_66b", "gpu=cpu_core"), "no model.tp of 1, 2, 4, 8 fits"),
        (("model=nowhere/config.json", "gpu=h100"), "nowhere/config.json cannot be read"),
        (("model=llama3_8b", "gpu=h100", "profile=nowhere.json"), "nowhere.json"),
    ],
)
def test_combinations_that_cannot_be_simulated_are_refused(words: tuple[str, ...], expected: str) -> None:
    with pytest.raises(HardwareError) as refused:
        support(words)
    assert expected in str(refused.value) and "\n" not in str(refused.value)


def test_it_says_what_starting_takes(capsys: pytest.CaptureFixture[str]) -> None:
    text = section(printed(capsys, "model=llama3_70b", "gpu=h100", "tp=4"), "start")
    assert (
        "cold: 56.5 s and its parameters: process 17 + context 0.5 + distributed 0.1 + compile 18.9" in text
    )
    assert "the first on a host 102 s" in text and "pooled: 0 s and its parameters" in text
    assert "vllm-startup-profiler" in text
    old = section(printed(capsys, "model=llama3_8b", "gpu=h100", "engine=vllm_0_2_0"), "start")
    assert "has vllm only from 0.6 on, not 0.2.0" in old


def test_without_a_tp_each_says_why_none_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HardwareError, match=r"no model\.tp of 1, 2, 4, 8 fits"):
        support(["model=opt_66b", "gpu=cpu_core"])
    told = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0].strip() for line in told] == ["tp 1", "tp 2", "tp 4", "tp 8"]
    with pytest.raises(HardwareError):
        support(["model=opt_66b", "gpu=cpu_core", "tp=2"])
    assert capsys.readouterr().err == ""
