"""What ``servetwin support`` says is measured, derived or assumed, and how far off each table is."""

from pathlib import Path

import pytest

from hwmodels.catalogue import gpu_names, load_gpu, load_llm
from hwmodels.step_times.all_reduce_catalogue import Imitated
from hwmodels.step_times.engine_overhead import EngineOverhead
from hwmodels.step_times.linear_catalogue import linear_entry, linear_keys
from servetwin.cli.support import support
from servetwin.config.compose.compose import load_config
from servetwin.support.evidence import (
    ASSUMED,
    DERIVED,
    MEASURED,
    NOTHING,
    all_reduce_word,
    engine_evidence,
    words_by_part,
)
from tests.worlds.measured_profile import section
from tests.worlds.step_profiles import folder

VLLM = Imitated("vllm", "0.19.0")
WORDS = {MEASURED, DERIVED, ASSUMED, NOTHING}


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert support(words) == 0
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def lines() -> list[str]:
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert support([]) == 0
    return out.getvalue().splitlines()


def rows(lines: list[str], first: str) -> list[list[str]]:
    """Of the table whose head begins with these words."""
    start = next(at for at, line in enumerate(lines) if line.split()[:2] == first.split()[:2])
    end = lines.index("", start) if "" in lines[start:] else len(lines)
    return [line.split() for line in lines[start + 1 : end]]


def test_it_is_readable_at_100_columns(lines: list[str]) -> None:
    assert max(map(len, lines)) <= 100


def test_every_table_has_a_row_with_its_held_out_error(lines: list[str]) -> None:
    found = {tuple(row[:3]): row[3:] for row in rows(lines, "gpu model")}
    assert set(found) == {(key.gpu, key.llm, str(key.tp)) for key in linear_keys()}
    for key in linear_keys():
        row = found[key.gpu, key.llm, str(key.tp)]
        assert set(row[:5]) <= WORDS and (row[3] == NOTHING) == (key.tp == 1)
        assert row[4] == (NOTHING if load_llm(key.llm).experts is None else MEASURED)
        errors = linear_entry(key).get("errors_percent", {})
        for shown, phase in zip(row[5:], ("prefill", "decode", "mixed"), strict=True):
            assert shown == (f"{errors[phase]['held_out_p95']:.1f}" if phase in errors else NOTHING)


@pytest.mark.parametrize(
    ("gpu", "llm", "tp", "words"),
    [
        ("rtx4090", "llama3_1_8b", "1", (MEASURED, MEASURED, MEASURED, NOTHING)),
        ("rtx_pro_6000", "qwen3_32b", "2", (MEASURED, MEASURED, MEASURED, MEASURED)),
        ("rtx_pro_6000", "qwen3_32b", "4", (DERIVED, MEASURED, ASSUMED, DERIVED)),  # NCCL alone
        ("h100", "llama3_1_70b", "4", (DERIVED, MEASURED, ASSUMED, MEASURED)),
        ("a100_80g", "llama3_70b", "4", (DERIVED, MEASURED, ASSUMED, DERIVED)),  # of vLLM 0.14
        ("a100_80g", "llama3_8b", "1", (MEASURED, MEASURED, ASSUMED, NOTHING)),
        ("a100_80g", "llama2_7b", "1", (MEASURED, DERIVED, ASSUMED, NOTHING)),  # decode from other heads
        ("cpu_core", "tiny_llama", "1", (ASSUMED, ASSUMED, ASSUMED, NOTHING)),
    ],
)
def test_the_words_are_what_the_sources_say(
    lines: list[str], gpu: str, llm: str, tp: str, words: tuple[str, ...]
) -> None:
    (row,) = (row for row in rows(lines, "gpu model") if row[:3] == [gpu, llm, tp])
    assert tuple(row[3:7]) == words


def test_every_gpu_has_a_row(lines: list[str]) -> None:
    found = {row[0]: row[1:] for row in rows(lines, "gpu tp")}
    assert set(found) == set(gpu_names())
    assert found["l40s"] == [DERIVED, DERIVED, DERIVED, DERIVED, DERIVED, DERIVED, DERIVED]
    assert found["h100"][:5] == [MEASURED, MEASURED, MEASURED, DERIVED, MEASURED]
    assert found["rtx4090"][:3] == [ASSUMED, ASSUMED, ASSUMED] and found["cpu_core"][0] == NOTHING


def test_llama2_70b_has_no_steps_of_another_stack() -> None:
    """Splitwise's whole steps at tp 2 and 8 came from an older engine without a name."""
    for key in linear_keys():
        if key.llm == "llama2_70b":
            entry = linear_entry(key)
            assert (
                key.gpu != "a100_80g"
                and not entry.get("includes_overhead")
                and "vLLM 0.19" in entry["source"]
            )


def test_l40s_has_all_reduces_of_nccl() -> None:
    assert [all_reduce_word("l40s", tp, VLLM) for tp in (2, 4, 8, 16)] == [DERIVED] * 3 + [NOTHING]


def test_one_combination_says_where_each_is_from(capsys: pytest.CaptureFixture[str]) -> None:
    text = section(printed(capsys, "model=llama3_8b", "gpu=h100"), "known how")
    assert "products derived, attention measured: composed of measured operations on h100" in text
    assert (
        "mixed assumed" in text and "load rates measured" in text and "all-reduce" not in text.split(":")[0]
    )
    assert "held-out error, mean / p95: decode 2.2 / 8.3 %, prefill 2.9 / 6.9 %" in text
    rough = section(printed(capsys, "model=opt_66b", "gpu=h100", "tp=4"), "known how")
    assert "products assumed, attention assumed: shares of the datasheet's peaks" in rough
    assert "held-out" not in rough and "all-reduce measured" in rough


def test_a_folder_of_whole_steps_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder(tmp_path / "steps")
    text = printed(capsys, "model=llama3_8b", "gpu=a100_80g", "tp=1", f"profile={path}")
    assert section(text, "step times").startswith("whole_step, the best rung there is")
    assert "products measured, attention measured, mixed derived: in whole steps" in section(
        text, "known how"
    )
    assert "overhead measured: inside the measured steps" in section(text, "known how")
    sums = folder(tmp_path / "sums", includes_overhead=False)
    text = printed(capsys, "model=llama3_8b", "gpu=a100_80g", "tp=1", f"profile={sums}")
    assert "products derived, attention derived" in section(text, "known how")
    assert "overhead derived: fitted to 20 stages" in section(text, "known how")


def test_what_is_known_of_an_engine() -> None:
    gpu, llm = load_gpu("a100_80g"), load_llm("llama3_8b")
    engine = load_config(["engine.kv_tokens=100000", "engine.loader=direct", "out=x"], "simulate").engine
    words = words_by_part(
        engine_evidence(gpu, llm, engine, EngineOverhead(step_s=1e-3, source="x", error_s=1e-4))
    )
    assert (words["overhead"], words["kv memory"], words["load rates"]) == (DERIVED, MEASURED, ASSUMED)
    rough = EngineOverhead(step_s=1e-3, source="rough, not calibrated")
    assert words_by_part(engine_evidence(gpu, llm, engine, rough))["overhead"] == ASSUMED
