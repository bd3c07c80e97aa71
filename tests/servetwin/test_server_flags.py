"""Every flag of ``vllm serve`` and SGLang's server has one answer: words to write, or why not modelled."""

import dataclasses
import re
from collections.abc import Sequence

import pytest

from scripts.flags_page import DOCS, PAGES, with_flags
from servetwin.cli.main import run
from servetwin.config.compose.compose import load_config
from servetwin.config.config import RunConfig
from servetwin.config.options import option_groups
from servetwin.config.overrides import leaves
from servetwin.config.server_flags import NOT_MODELLED, SERVERS, Flag, answer, names_of, server_flags
from serving.vocabulary.errors import UserError

# A value of each flag that has words here and takes one, by the key that it sets.
SAMPLES = {
    "model": "llama3_8b",
    "seed": "3",
    "engine.max_model_len": "4k",
    "engine.loader": "auto",
    "model.pp": "2",
    "model.tp": "2",
    "engine.data_parallel_size": "1",
    "engine.block_tokens": "32",
    "engine.gpu_memory_utilization": "0.8",
    "engine.kv_tokens": "4000",
    "engine.max_num_batched_tokens": "4096",
    "engine.max_num_seqs": "64",
    "system.instances.scheduling_policy": "fcfs",
    "system/dispatch": "total_requests",
    "engine.enable_expert_parallel": "1",
    "system": "null",
}
MAPPED = [flag for flag in server_flags() if not flag.group]


def wrong_rows(flags: Sequence[Flag]) -> list[str]:
    """Return the flags whose answer names a key, an option or a group of reasons that does not exist."""
    keys, groups = leaves(RunConfig), option_groups()
    wrong = []
    for flag in flags:
        known = flag.group in NOT_MODELLED if flag.group else bool(flag.keys)
        for key in flag.keys:
            known &= key in keys or key in groups
        results = [rule.partition(">")[2] for rule in flag.converts if ">" in rule]
        (key, *_) = flag.keys or ("",)
        if key in groups and key != "model":
            known &= all(result in (*NOT_MODELLED, *groups[key]) for result in results)
        if not known:
            wrong.append(flag.flag)
    return wrong


def test_every_answer_names_what_exists() -> None:
    assert wrong_rows(server_flags()) == []


@pytest.mark.parametrize(
    ("flag", "changed"),
    [
        ("--tensor-parallel-size", {"answer": "model.tpp=VALUE"}),
        ("--mem-fraction-static", {"answer": "engine.kv_tokens=VALUE engine.reserve_activations=0"}),
        ("--calculate-kv-scales", {"answer": "not modelled: quantum"}),
        ("--load-balance-method", {"converts": ("total_requests>least_outstandig",)}),
        ("--host", {"answer": ""}),
    ],
)
def test_a_changed_row_is_noticed(flag: str, changed: dict[str, object]) -> None:
    row = next(row for row in server_flags() if row.flag == flag)
    assert wrong_rows([dataclasses.replace(row, **changed)]) == [flag]  # type: ignore[arg-type]


def test_every_flag_is_listed_once() -> None:
    for server in SERVERS:
        spellings = [word for flag in server_flags() if flag.server == server for word in flag.spellings]
        assert len(spellings) == len(set(spellings)), server
        assert len({flag.version for flag in server_flags() if flag.server == server}) == 1
    assert {flag.server for flag in server_flags()} == set(SERVERS)
    assert {flag.values for flag in server_flags()} == {"none", "one", "many", "optional"}
    assert {flag.group for flag in server_flags()} - {""} == set(NOT_MODELLED), "every reason has flags"


@pytest.mark.parametrize("server", SERVERS)
def test_every_spelling_is_answered_on_the_command_line(
    server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for flag in (flag for flag in server_flags() if flag.server == server):
        for spelling in flag.spellings:
            value = [] if flag.values == "none" else ["1"]
            assert run(["simulate", spelling, *value, "out=none"]) == 2
            told = capsys.readouterr().err
            assert "Traceback" not in told and told.count("\n") == 1
            kinds = [": write " in told, "not modelled" in told]
            assert kinds.count(True) == 1, (spelling, told)


@pytest.mark.parametrize("server", SERVERS)
def test_every_flag_is_answered_as_a_key(server: str) -> None:
    keys, groups = leaves(RunConfig), option_groups()
    for flag in (flag for flag in server_flags() if flag.server == server):
        name = flag.flag[2:].replace("-", "_")
        for word in (name, f"engine.{name}"):
            if word in keys or word in groups or word == "config":
                continue
            with pytest.raises(UserError) as refused:
                load_config([f"{word}=1", "trace=gamma", "out=none"], "simulate")
            told = str(refused.value)
            assert ("not modelled" in told) != (": write " in told), (word, told)
            assert "starts with" not in told and "write a key" not in told, (word, told)


@pytest.mark.parametrize("flag", MAPPED, ids=lambda flag: f"{flag.server}{flag.flag}")
def test_the_words_can_be_written(flag: Flag) -> None:
    text = "" if flag.values == "none" else SAMPLES.get(flag.keys[0], "2")
    for negated in (False, True) if flag.values == "none" else (False,):
        told = answer(flag, text, negated)
        if told.write:
            write = told.write.replace("GPU_xN", "h100_x8").replace("tokens=N", "tokens=4000")
            words = re.sub(r"=N\b", "=2", write).split()
            words += ["model=mixtral_8x7b", "cluster=h100_x8"] if "expert" in told.write else []
            if "engine.data_parallel_size=2" in words:
                words += ["model=mixtral_8x7b", "cluster=h100_x8", "model.tp=2"]
            if "system=distserve_full" in words:
                words.append("cluster=blitz_b")
            assert load_config([*words, "trace=gamma", "out=none"], "simulate").out == "none"
        else:
            assert told.why in NOT_MODELLED.values()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--tensor-parallel-size", "4"], "write model.tp=4"),
        (["--tensor_parallel_size=4"], "write model.tp=4"),
        (["-tp", "4"], "write model.tp=4"),
        (["-tp=4"], "write model.tp=4"),
        (["--tp", "4"], "of SGLang's server 0.5.10: write model.tp=4"),
        (["--max-num-seqs=128"], "of vllm serve 0.19.0: write engine.max_num_seqs=128"),
        (["--max-model-len", "16k"], "write engine.max_model_len=16000"),
        (["--max-model-len", "16K"], "write engine.max_model_len=16384"),
        (["--max-model-len", "-1"], "write engine.max_model_len=null"),
        (["--num-gpu-blocks-override", "100"], "write engine.kv_tokens=1600"),
        (["--no-enable-prefix-caching"], "write engine.prefix_caching=false"),
        (["--no-enforce-eager"], "write engine.overhead.cuda_graphs=true"),
        (["--disable-radix-cache"], "write engine.prefix_caching=false"),
        (["--no-enable-chunked-prefill"], "not modelled (vLLM v1 without chunks"),
        (["--chunked-prefill-size", "-1"], "not modelled"),
        (["--schedule-policy", "lpm"], "not modelled"),
        (["--schedule-policy", "fcfs"], "write system.instances.scheduling_policy=fcfs"),
        (["--load-balance-method", "total_tokens"], "write system/dispatch=least_kv"),
        (["--mem-fraction-static", "0.8"], "utilization=0.8 engine.reserve_activation_bytes=0"),
        (["--quantization", "fp8"], "is a flag of vllm serve 0.19.0: write model.precision=fp8"),
        (["-q", "fp8"], "-q fp8 is a flag of vllm serve"),
        (["--quantization", "modelopt_fp4"], "write model.precision=nvfp4"),
        (["--quantization", "gguf"], "not modelled"),
        (["--kv-cache-dtype", "fp8_e4m3"], "write engine.kv_cache_dtype=fp8"),
        (["-r", "0"], "-r 0 is a flag of vllm serve"),
        (["-sc", '{"method": "ngram"}'], "there is no speculative decoding"),
        (["-O3"], "-O3 is a flag of vllm serve"),
        (["--compilation-config.mode", "3"], "--compilation-config.mode 3 is a flag"),
        (["--data-parallel-size", "2"], "write engine.data_parallel_size=2"),
        (["--data-parallel-size", "2", "--tp-size", "2"], "write cluster=GPU_xN model.tp=2 (replicas: N is"),
        (["--kv-cache-memory-bytes", "10G"], "write engine.kv_tokens=N (N is these bytes"),
        (
            ["org/Name", "--port", "80", "-tp", "2"],
            "write model=org/Name model.tp=2; leave out --port 80,",
        ),
        (["org/Name-8B"], "write model=org/Name-8B"),
        (["--quantizaton", "fp8"], "if --quantization of vllm serve 0.19.0 is meant, write model.precision"),
        (["--max-num-sequences=8"], "no flag here or of vllm serve 0.19.0 and SGLang's server 0.5.10"),
        (["--out", "x"], "--out x is no flag: write out=x"),
        (["--engine.kv_tokens=9"], "is no flag: write engine.kv_tokens=9"),
        (["--num-prompts", "9"], "write trace.limit=9"),
        (["max-num-seqs=9"], "has '-' in its key: write engine.max_num_seqs=9"),
        (["engine.kv-tokens=9"], "has '-' in its key: write engine.kv_tokens=9"),
        (["enable_chunked_prefill=false"], "vLLM v1 without chunks"),
        (["enable_priority_scheduling=false"], "write system.instances.scheduling_policy=fcfs"),
    ],
)
def test_flags_and_their_spellings(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", *words, "out=none"]) == 2
    assert told in capsys.readouterr().err


def test_own_flags_stay_flags(capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("-q", "-r", "--run"):
        assert run(["simulate", flag, "trace=gamma", "trace.requests=0", "out=none"]) == 2
        assert "is a flag of" not in capsys.readouterr().err


def test_a_real_run_has_keys_that_are_sglangs_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--device", "cuda"]) == 2
    assert "not modelled" in capsys.readouterr().err
    from servetwin.cli.realexec import run as realexec

    assert realexec(["run", "--device", "cuda"]) == 2
    assert "--device cuda is no flag: write device=cuda" in capsys.readouterr().err


def test_keys_know_the_flags_that_set_them() -> None:
    assert names_of("engine.block_tokens") == ("block_size", "page_size")
    assert "tensor_parallel_size" in names_of("model.tp")
    assert names_of("engine.exact") == ()


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_list_the_flags(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert with_flags(text) == text, "write python -m scripts.flags_page"


def test_the_page_has_every_flag() -> None:
    text = (DOCS / "reference" / "FLAGS.md").read_text(encoding="utf-8")
    assert [flag.flag for flag in server_flags() if f"`{flag.flag}`" not in text] == []
