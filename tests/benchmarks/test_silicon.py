"""Measured rows: what their words say, what is fitted on whom, and what is kept of a run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.silicon import runs
from benchmarks.silicon.fit import Trials, best, with_experts
from benchmarks.silicon.left_out import LeftOut
from benchmarks.silicon.page import page, ranges
from benchmarks.silicon.ranges import SHARE, busy, impossible, inside, shown, width
from benchmarks.silicon.rows import COLUMNS, Row, read_rows, refusal, words
from benchmarks.silicon.runs import Asked, Result, Terms, run_all
from hwmodels.step_times.library_step import LibraryTerms

DENSE, MIXTURE = "meta-llama/Llama-3.1-70B", "MiniMaxAI/MiniMax-M2.5"
ROW = Row(
    id="1", source="db-dump; measured=2026-04-18T00:00", backend="vllm", version="0.19.0", model=DENSE,
    system="h100_sxm", precision="fp8", experts="", prompt_tokens=1024, output_tokens=1024, clients=4, tp=4,
    pp=1, attention_dp=1, expert_tp=1, expert_ep=1, ttft_ms=100.0, tpot_ms=10.0, aic_ttft_ms=None,
    aic_tpot_ms=None,
)  # fmt: skip


def result(name: str, ttft: float, tpot: float, model: str = DENSE, system: str = "h100_sxm") -> Result:
    """A row whose measured means are these times the simulated ones."""
    row = replace(ROW, id=name, model=model, system=system, ttft_ms=100.0 * ttft, tpot_ms=10.0 * tpot)
    return Result(row, 100.0, 10.0)


def test_a_file_is_read_and_a_row_is_loaded_as_its_client_did(tmp_path: Path) -> None:
    values = {
        "id": "7", "silicon_data_source": ROW.source, "backend": "vllm", "backend_version": "0.19.0",
        "model_path": MIXTURE, "system": "b200_sxm", "precision": "fp4", "isl": "8192", "osl": "1024.0",
        "moe_quant_mode": "nvfp4", "batch_size": "16", "tp_size": "4", "pp_size": "",
        "attention_dp_size": "1", "moe_tp_size": "1", "moe_ep_size": "4", "silicon_ttft_ms": "5.5",
        "silicon_tpot_ms": "7",
    }  # fmt: skip
    file = tmp_path / "rows.csv"
    file.write_text(",".join(COLUMNS) + "\n" + ",".join(values[name] for name in COLUMNS) + "\n")
    (row,) = read_rows(file)
    assert (row.clients, row.pp, row.aic_ttft_ms, row.group) == (16, 1, None, (MIXTURE, "b200_sxm"))
    told = words(row)
    assert {
        "cluster=b200_x4", "model.precision=nvfp4", "engine.enable_expert_parallel=true", "trace.clients=16",
        "trace.lengths=8192x1024", "trace.length_ratio=0.8", "trace.requests=160", "trace.warmup_requests=32",
        "engine.max_model_len=9416",
    } <= set(told)  # fmt: skip
    old = replace(row, source="measured=2026-01-20T00:00")
    assert not any("warmup" in word for word in words(old)), "none before 2026-01-21"
    assert refusal(replace(row, backend="sglang")) and refusal(replace(row, pp=2))


def test_a_row_with_attention_in_data_parallel_names_all_gpus_its_tp(tmp_path: Path) -> None:
    """Of two GPUs each has attention of its own, and the file's clients are those of one engine."""
    values = dict.fromkeys(COLUMNS, "1") | {"backend": "vllm", "model_path": MIXTURE, "tp_size": "2"}
    values |= {"attention_dp_size": "2", "moe_ep_size": "4", "batch_size": "128", "system": "b300_sxm"}
    file = tmp_path / "rows.csv"
    file.write_text(",".join(COLUMNS) + "\n" + ",".join(values[name] for name in COLUMNS) + "\n")
    (row,) = read_rows(file)
    assert (row.tp, row.attention_dp, row.clients) == (1, 2, 256)
    assert {"model.tp=1", "cluster=b300_x2", "engine.data_parallel_size=2", "trace.clients=256"} <= set(
        words(row)
    )


def test_a_row_that_needs_more_than_the_gpu_has_is_not_fitted_on() -> None:
    """64 clients of 70 billion parameters at 2 FLOP a parameter and token, on four GPUs of 1.979 PFLOP/s."""
    fast = replace(ROW, clients=64, ttft_ms=20.0, tpot_ms=0.75)
    request_s = 0.02 + 1023 * 0.00075
    by_hand = 2 * 70.55e9 * 64 * 2048 / request_s / (4 * 1.979e15)
    assert busy(fast) == pytest.approx(by_hand, rel=0.01) and by_hand > 2
    assert impossible([Result(fast, 1.0, 1.0), result("2", 1, 1, system="h200_sxm")]) == {(DENSE, "h100_sxm")}
    others = [result(str(n), 1.1, 1.2, system="h200_sxm") for n in range(3)]
    assert shown([*others, Result(fast, 2000.0, 750.0)]).decodes == (1.0, 1.2)


def test_each_group_weighs_the_same_and_its_own_rows_say_nothing_about_it() -> None:
    many = [result(f"a{n}", 1.5, 1.25) for n in range(98)]
    one = [result("b", 0.5, 0.8, system="b200_sxm")]
    assert shown([*many, *one]).prompts == (0.5, 1.5), "one row of two groups has half the weight"
    assert shown([*many, *one], (DENSE, "h100_sxm")).prompts == (0.5, 1.0)
    assert shown([*many, *one], (DENSE, "b200_sxm")).decodes == (1.0, 1.25)


def test_prompts_are_fitted_together_and_decodes_by_kind() -> None:
    found = shown([result("a", 0.8, 1.3), result("b", 1.6, 0.7, MIXTURE, "b200_sxm")])
    assert found.prompts == (0.8, 1.6)
    assert (found.decodes, found.expert_decodes) == ((1.0, 1.3), (0.7, 1.0))


def test_so_many_ratios_lie_between_the_factors() -> None:
    ratios = [0.5 + n / 1000 for n in range(1000)]
    low, high = shown([result(str(n), ratio, 1.0) for n, ratio in enumerate(ratios)]).prompts
    assert sum(low <= ratio <= high for ratio in ratios) / 1000 == pytest.approx(SHARE, abs=0.02)


def test_what_nobody_shows_is_rough() -> None:
    only = [result("a", 1.0, 1.0)]
    assert shown(only, (DENSE, "h100_sxm")) == LibraryTerms(
        prompts=(0.5, 2.0), decodes=(0.5, 2.0), expert_decodes=(0.5, 2.0)
    )


def test_coverage_and_width() -> None:
    hit = replace(result("a", 1.1, 0.9), ttft_ends_ms=(90.0, 120.0), tpot_ends_ms=(9.5, 19.0))
    assert inside(hit, "ttft") and not inside(hit, "tpot")
    assert width([hit], "ttft") == pytest.approx(4 / 3)
    lines = ranges([hit])
    assert any("| 1 of 1 (100%) | x1.33 | 0 of 1 (0%) | x2.00 |" in line for line in lines)


def test_the_page_tells_median_errors_and_has_what_the_kinds_give() -> None:
    near = replace(result("a", 0.8, 1.25), ttft_ends_ms=(70.0, 120.0), tpot_ends_ms=(9.5, 19.0))
    far = replace(result("b", 2.0, 2.0, MIXTURE), row=replace(ROW, id="b", model=MIXTURE, aic_ttft_ms=150.0))
    text = page(LeftOut([near, far], {}, LibraryTerms()))
    assert "On 2 rows the median errors of mean TTFT and TPOT are 12.5% and 10.0%;" in text
    assert "AIConfigurator's, on 1 of them, are 50.0%." in text
    assert f"| {MIXTURE} | 1 of 1 | 0.0% / 0.0% / +0% | 50.0% / 50.0% / +50% |" in text
    assert "1 of 1 (100%)" in text and "By load" not in text


def test_constants_are_those_with_the_least_error_without_the_group() -> None:
    """The group's own rows like the first pair, the others the second."""
    first, second = Terms(LibraryTerms(query_norm_s=1e-5)), Terms(LibraryTerms(query_norm_s=2e-5))
    own = [result(f"a{n}", 1.0, 1.0, MIXTURE) for n in range(9)]
    other = [result("b", 1.5, 1.0, MIXTURE, "b200_sxm")]
    worse = [replace(one, ttft_ms=50.0) for one in own]
    pairs = {first: [*own, *other], second: [*worse, replace(other[0], ttft_ms=150.0)]}
    latent = {Terms(LibraryTerms(latent_graph_s=4e-5)): [result("d", 1, 1, "moonshotai/Kimi-K2.5")]}
    of = Trials(pairs, latent)
    assert best(of).library == replace(first.library, latent_graph_s=4e-5)
    assert best(of, (MIXTURE, "h100_sxm")).library == replace(second.library, latent_graph_s=4e-5)
    only = best(of, ("moonshotai/Kimi-K2.5", "h100_sxm")).library
    assert only.latent_graph_s == LibraryTerms().latent_graph_s, "no other row tells: as shipped"
    assert with_experts([one.row for one in [*own, result("c", 1, 1)]]) == [one.row for one in own]


def test_results_are_kept_and_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of other constants, other code or with ends: not."""
    asked = [Asked(replace(ROW, id="1", backend="sglang")), Asked(replace(ROW, id="2", backend="trtllm"))]
    first = run_all(asked, tmp_path)
    assert [one.row.id for one in first] == ["1", "2"] and all(one.refused for one in first)
    path = tmp_path / "runs" / f"{asked[1].name}.json"
    path.write_text(json.dumps([1.0, 2.0, "", [0.5, 1.5], None]))
    kept = run_all(asked, tmp_path)[1]
    assert (kept.ttft_ms, kept.ttft_ends_ms, kept.tpot_ends_ms) == (1.0, (0.5, 1.5), None)
    names = {
        asked[1].name,
        replace(asked[1], ranges=True).name,
        replace(asked[1], terms=Terms(old_sequence_s=0.0)).name,
    }
    monkeypatch.setattr(runs, "code_digest", lambda: "other code")
    assert len({*names, asked[1].name}) == 4
