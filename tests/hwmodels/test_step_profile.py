"""Profiles of whole steps: what is read and refused, the model between lines, the overhead in them."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hwmodels.errors import HardwareError
from hwmodels.importers.step_profile_file import read_step_profile, splitwise_steps, write_step_profile
from hwmodels.profiles.step_profile import StepProfile
from hwmodels.step_times.engine_overhead import EngineOverhead
from hwmodels.step_times.op_table_step import OpTableStepModel
from hwmodels.step_times.overhead_fit import fit_overhead
from hwmodels.step_times.rows import FIXED_PER_S, StepRows
from hwmodels.step_times.whole_step import fitted_whole_steps
from hwmodels.step_times.whole_step_error import held_out_whole_steps, whole_step_model
from tests.worlds.step_profiles import STAMP, folder, grid, law_s
from tests.worlds.toy_profile import toy_profile


def read(path: Path) -> StepProfile:
    return read_step_profile(path).profile


def test_what_is_written_is_read(tmp_path: Path) -> None:
    stamp = replace(STAMP, notes=("a note: with a colon",))
    found = read(folder(tmp_path / "p", stamp=stamp))
    assert replace(found.stamp, files=(), notes=stamp.notes) == stamp and found.includes_overhead
    assert [name for name, _ in found.stamp.files] == ["meta.yaml", "steps.csv"]
    assert len(found.steps) == len(grid()) and set(found.steps.repeats.tolist()) == {3}
    assert found.repeat_spread is None and "a note: with a colon" in found.stamp.notes


def test_repeats_of_a_step_are_put_together_by_weight(tmp_path: Path) -> None:
    rows = grid(mixed=False)
    first = rows[0]
    more = [*rows, (*first[:5], 1, first[6] * 1.4)]
    found = read(folder(tmp_path / "p", more))
    at = int(np.flatnonzero((found.steps.decode_sequences == 1) & (found.steps.context_tokens == 16))[0])
    assert found.steps.repeats[at] == 4
    assert found.steps.seconds[at] == pytest.approx(first[6] * 1.1)
    assert found.repeat_spread == pytest.approx(1.4 / 1.1 - 1.0, rel=0.05)


def test_parquet_is_read_as_csv_is(tmp_path: Path) -> None:
    import pandas as pd

    csv = folder(tmp_path / "csv")
    other = tmp_path / "parquet"
    other.mkdir()
    (other / "meta.yaml").write_bytes((csv / "meta.yaml").read_bytes())
    pd.read_csv(csv / "steps.csv").to_parquet(other / "steps.parquet")
    assert np.array_equal(read(csv).steps.seconds, read(other).steps.seconds)


def change_meta(old: str, new: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        text = (path / "meta.yaml").read_text()
        assert old in text
        (path / "meta.yaml").write_text(text.replace(old, new))

    return change


def add_row(row: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with (path / "steps.csv").open("a") as file:
            file.write(f"{row}\n")

    return change


def remove(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (remove("meta.yaml"), "p has no meta.yaml: a whole-step profile is a folder"),
        (remove("steps.csv"), "p has 0 of steps.csv and steps.parquet; keep exactly one"),
        (change_meta("tp: 1", "tp: 0"), "meta.yaml: tp is 0; write a whole number of at least 1"),
        (change_meta("tp: 1\n", ""), "meta.yaml lacks the key 'tp'"),
        (change_meta("tp: 1", "tp: 1\nfast: true"), "meta.yaml has an unknown key 'fast'"),
        (change_meta('"servetwin-steps"', "other"), "format is 'other'; write servetwin-steps"),
        (change_meta('"steps"', "half"), "holds is 'half'; write steps or operations"),
        (change_meta("schema: 1", "schema: 1\nchunks: 2"), "chunks is 2; write together or apart"),
        (change_meta('"a100_80g"', "b900"), "b900"),
        (change_meta('"made up"', '""'), "source is ''; write a text that is not empty"),
        (add_row("0,0,0,0,0,1,5000"), "has neither prompts nor decodes"),
        (add_row("8,0,0,0,0,1,5000"), "write prefill_sequences from 1 up to as many"),
        (add_row("0,0,64,4,400,1,5000"), "write 0 for prefill_sequences and cached_tokens"),
        (add_row("0,0,0,4,3,1,5000"), "context_tokens below its decode_sequences"),
        (add_row("8,1,0,0,5,1,5000"), "write 0 for context_tokens"),
        (add_row("8,1,0,0,0,1,-5"), "write a time above 0"),
        (add_row("8,1,0,0,0,1,x"), "write a time above 0"),
    ],
)
def test_what_is_wrong_is_refused_in_a_sentence(
    tmp_path: Path, change: Callable[[Path], None], told: str
) -> None:
    path = folder(tmp_path / "p")
    change(path)
    with pytest.raises(HardwareError) as refused:
        read(path)
    assert told in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(("kept", "told"), [(0, "decodes alone"), (1, "prompts alone")])
def test_both_phases_are_needed(tmp_path: Path, kept: int, told: str) -> None:
    rows = [row for row in grid(mixed=False) if (row[0] > 0) == (kept == 0)]
    with pytest.raises(HardwareError, match=told):
        read(folder(tmp_path / "p", rows))


def test_a_folder_that_exists_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "mine").write_text("x")
    with pytest.raises(HardwareError, match="does not exist yet"):
        write_step_profile(tmp_path / "p", STAMP, includes_overhead=True, rows=grid())
    assert [entry.name for entry in tmp_path.iterdir()] == ["p"]


def test_a_bad_point_is_left_out_and_many_are_refused(tmp_path: Path) -> None:
    rows = grid(mixed=False)
    bad = next(at for at, row in enumerate(rows) if row[3] == 8 and row[4] == 8 * 512)
    one = [(*row[:6], row[6] / 2) if at == bad else row for at, row in enumerate(rows)]
    found = read(folder(tmp_path / "one", one))
    assert len(found.steps) == len(rows) - 1
    assert any("left out: 1 of" in note for note in found.stamp.notes)
    many = [(*row[:6], row[6] * (1 + 2 * (at % 2))) for at, row in enumerate(rows)]
    with pytest.raises(HardwareError, match="too noisy"):
        read(folder(tmp_path / "many", many))


def test_measured_steps_take_what_was_measured(tmp_path: Path) -> None:
    profile = read(folder(tmp_path / "p", grid(mixed=False)))
    model, notes = fitted_whole_steps(profile.steps)
    assert model.step_s(profile.steps) == pytest.approx(profile.steps.seconds, rel=1e-8)
    assert model.square_s == pytest.approx(2e-9, rel=1e-6) and notes == ()
    rows = StepRows(model)
    for n, context in ((1, 16), (8, 8 * 512), (32, 32 * 1024)):
        assert rows.decode_cost(n, context) / FIXED_PER_S == pytest.approx(
            law_s(0, 0, 0, n, context), rel=1e-6
        )
    assert rows.mixed(0, 0, ((0, 512, 256),)) / FIXED_PER_S == pytest.approx(
        law_s(256, 1, 512, 0, 0), rel=1e-8
    )


def test_chunks_and_decodes_that_follow_each_other_are_summed(tmp_path: Path) -> None:
    def law(new: int, chunks: int, cached: int, n: int, context: int) -> float:
        squares = new * (new / chunks + 2 * cached) if chunks else 0.0
        return chunks * 0.002 + 1e-4 * new + 2e-9 * squares + (0.004 + 1e-4 * n + 3e-8 * context if n else 0)

    rows = [*grid(law), (512, 4, 0, 0, 0, 3, law(512, 4, 0, 0, 0))]
    write_step_profile(tmp_path / "p", STAMP, includes_overhead=True, rows=rows, apart=True)
    profile = read(tmp_path / "p")
    assert profile.apart and not read(folder(tmp_path / "q")).apart
    compiled = StepRows(whole_step_model(profile))
    chunks = [(0, 0, 100), (1, 0, 200), (2, 0, 300)]
    wanted = sum(law(new, 1, 0, 0, 0) for _, _, new in chunks) + law(0, 0, 0, 16, 4096)
    assert compiled.mixed(16, 4096, chunks) / FIXED_PER_S == pytest.approx(wanted, rel=1e-3)
    assert {
        one.phase: one.mean_percent < 0.01 for one in held_out_whole_steps(profile.steps, True)
    } == dict.fromkeys(("decode", "prefill", "mixed"), True)


def test_between_the_lines_a_step_lies_between_its_neighbours(tmp_path: Path) -> None:
    model, _ = fitted_whole_steps(read(folder(tmp_path / "p")).steps)
    rows = StepRows(model)
    for n in range(1, 33):
        costs = [rows.decode_cost(n, context) for context in range(n, 32 * 1024, 97)]
        assert costs == sorted(costs)
        assert costs[0] / FIXED_PER_S == pytest.approx(law_s(0, 0, 0, n, n), rel=0.02)
    for new in (65, 180, 300, 1000):  # the law has a kink at 100 tokens
        assert rows.mixed(0, 0, ((0, 0, new),)) / FIXED_PER_S == pytest.approx(
            law_s(new, 1, 0, 0, 0), rel=0.05
        )


def test_the_range_ends_where_nothing_was_measured(tmp_path: Path) -> None:
    model, _ = fitted_whole_steps(read(folder(tmp_path / "p")).steps)
    rows, limits = StepRows(model), model.limits
    assert (limits.max_decode_sequences, limits.max_context_tokens) == (32, 32 * 1024)
    assert (limits.max_prefill_tokens, limits.prompt_tokens) == (1024, 3072)
    for beyond in (lambda: rows.decode_cost(33, 33), lambda: rows.decode_cost(1, 32 * 1024 + 1)):
        with pytest.raises(HardwareError):
            beyond()
    with pytest.raises(HardwareError):
        rows.mixed(0, 0, ((0, 0, 1025),))


def test_the_error_is_that_of_lines_the_model_has_not_seen(tmp_path: Path) -> None:
    """A kink at 100 tokens (the law's) is seen with its line and missed without; so the error is not 0."""
    steps = read(folder(tmp_path / "p")).steps
    judged = {one.phase: one for one in held_out_whole_steps(steps)}
    assert set(judged) == {"decode", "prefill", "mixed"}
    assert judged["decode"].p95_percent < 1.0 and 1.0 < judged["prefill"].p95_percent < 25.0
    assert judged["mixed"].rows == 4 and judged["mixed"].p95_percent < 10.0
    bent = grid(lambda *step: law_s(*step) * (1.09 if step[3] in (2, 8) else 1.0))
    worse = {one.phase: one for one in held_out_whole_steps(read(folder(tmp_path / "q", bent)).steps)}
    assert worse["decode"].p95_percent > 5.0


def test_a_step_with_both_saves_what_measured_ones_save(tmp_path: Path) -> None:
    """Of these a prompt beside decodes takes both steps less 1 ms, whatever its length; one row is off."""
    rows = grid(mixed=False)
    alone, _ = fitted_whole_steps(read(folder(tmp_path / "alone", rows)).steps)
    assert alone.saved_s is None
    both = [
        (new, 1, 0, n, 512 * n, 3, law_s(new, 1, 0, 0, 0) + law_s(0, 0, 0, n, 512 * n) - 1e-3 + off_s)
        for new, n, off_s in ((64, 8, 0.0), (256, 8, 0.0), (1024, 1, 0.0), (1024, 32, 5e-3))
    ]
    steps = read(folder(tmp_path / "both", [*rows, *both])).steps
    model, _ = fitted_whole_steps(steps)
    assert model.saved_s == pytest.approx(1e-3, rel=1e-3)
    assert StepRows(model).mixed(8, 8 * 512, ((0, 0, 512),)) / FIXED_PER_S == pytest.approx(
        law_s(512, 1, 0, 0, 0) + law_s(0, 0, 0, 8, 8 * 512) - 1e-3, rel=1e-3
    )
    assert model.step_s(steps.where(~steps.phase("mixed"))) == pytest.approx(
        alone.step_s(steps.where(~steps.phase("mixed")))
    )
    judged = {one.phase: one for one in held_out_whole_steps(steps)}
    assert judged["mixed"].rows == 4 and judged["mixed"].bias_percent < 0  # the row that is off


def test_the_model_carries_its_error_by_phase(tmp_path: Path) -> None:
    model = whole_step_model(read(folder(tmp_path / "p")))
    assert model.errors.decode.how == "held out" and model.errors.mixed.how == "held out"
    assert 1.0 < model.errors.prefill.high < 1.25
    assert model.includes_overhead and model.labels == ()
    assert "whole steps: " in model.source and "vllm 0.19.0" in model.source and "made up" in model.source
    few = [row for row in grid(mixed=False) if row[3] in (0, 1, 32) and row[0] in (0, 64, 1024)]
    few = [row for row in few if row[2] in (0, 2048) and row[4] // max(row[3], 1) in (0, 16, 1024)]
    assert whole_step_model(read(folder(tmp_path / "few", few))).errors.decode.how == "assumed"


def test_sums_of_operations_are_called_so(tmp_path: Path) -> None:
    profile = read(folder(tmp_path / "p", includes_overhead=False))
    model = whole_step_model(profile)
    assert not model.includes_overhead and model.labels == (
        "step times are sums of operations, not measured steps",
    )
    with pytest.raises(HardwareError, match="without engine overhead"):
        fit_overhead(profile, model)


def test_an_overhead_is_found_again(tmp_path: Path) -> None:
    operations = whole_step_model(read(folder(tmp_path / "ops", grid(mixed=False), includes_overhead=False)))
    whole = grid(lambda *step: law_s(*step) + 3e-4 + 2e-5 * (step[1] + step[3]), mixed=False)
    found = fit_overhead(read(folder(tmp_path / "p", whole)), operations)
    assert found.step_s == pytest.approx(3e-4, rel=1e-3) and found.per_sequence_s == pytest.approx(
        2e-5, rel=1e-3
    )
    assert found.error_s < 1e-6 and found.rows == 24 and found.refused == 0
    decode, prefill = (
        next(one for one in found.regimes if one.phase == phase) for phase in ("decode", "prefill")
    )
    assert prefill.beyond_s == pytest.approx(3.2e-4, rel=1e-3) and prefill.held_out_percent[1] < 0.01
    assert decode.beyond_s == pytest.approx(3e-4 + 2e-5 * 10.5, rel=1e-3)


def test_operations_are_summed_as_a_run_sums_them(tmp_path: Path) -> None:
    """Chunks of one step share a kernel, mixed steps their attention: what is left is the overhead alone."""
    operations = OpTableStepModel(toy_profile(skew=None), "")
    rows = StepRows(operations)

    def whole_s(prefill: int, chunks: int, cached: int, n: int, context: int) -> float:
        each = [(at, cached, prefill // chunks) for at in range(chunks)]
        return rows.mixed(n, context, each) / FIXED_PER_S + 1e-3

    shapes = [(0, 0, 0, n, n * context) for n in (1, 2, 4, 8, 16) for context in (16, 64, 256, 1024)]
    shapes += [(new, chunks, 64, 0, 0) for new in (32, 64, 128) for chunks in (1, 2, 4)]
    shapes += [(64, 1, 64, n, n * 64) for n in (2, 8)]
    measured = [(*shape, 1, whole_s(*shape)) for shape in shapes]
    found = fit_overhead(read(folder(tmp_path / "p", measured)), operations)
    assert found.step_s == pytest.approx(1e-3, rel=1e-4) and found.error_s < 1e-7 and found.refused == 0
    assert all(one.beyond_s == pytest.approx(1e-3, rel=1e-4) for one in found.regimes)
    assert [one.phase for one in found.regimes] == ["prefill", "decode", "mixed"]


def test_the_held_out_error_of_an_overhead_sees_what_it_does_not_explain(tmp_path: Path) -> None:
    operations = whole_step_model(read(folder(tmp_path / "ops", grid(mixed=False), includes_overhead=False)))
    whole = grid(lambda *step: law_s(*step) + (6e-4 if step[3] in (4, 16) else 0.0), mixed=False)
    found = fit_overhead(read(folder(tmp_path / "p", whole)), operations)
    assert 2e-4 < found.error_s < 1e-3


def test_operations_above_the_measured_steps_leave_no_overhead(tmp_path: Path) -> None:
    operations = whole_step_model(read(folder(tmp_path / "ops", grid(mixed=False), includes_overhead=False)))
    whole = grid(lambda *step: 0.8 * law_s(*step), mixed=False)
    found = fit_overhead(read(folder(tmp_path / "p", whole)), operations)
    assert (found.step_s, found.per_sequence_s) == (0.0, 0.0)
    assert all(one.beyond_s < 0 for one in found.regimes)


def test_a_fitted_overhead_is_off_by_its_error() -> None:
    low, high, told = EngineOverhead(step_s=3e-4, error_s=1e-4).ends()
    assert (low.step_s, high.step_s) == (pytest.approx(2e-4), pytest.approx(4e-4)) and "fitted" in told
    assert EngineOverhead(step_s=3e-5, error_s=1e-4).ends()[0].step_s == 0.0


@pytest.mark.parametrize(("gpu", "tp", "rows"), [("a100_80g", 2, 30), ("a100_80g", 8, 32), ("h100", 8, 32)])
def test_real_splitwise_becomes_a_profile_of_whole_steps(
    tmp_path: Path, gpu: str, tp: int, rows: int
) -> None:
    table = Path(os.environ.get("SERVETWIN_PROFILES", "nowhere")) / "splitwise_llama2-70b_tp2_tp8.csv"
    if not table.is_file():
        pytest.skip("the profiles are not here: set SERVETWIN_PROFILES to their folder")
    stamp, measured = splitwise_steps(table, gpu, "llama2_70b", tp)
    write_step_profile(tmp_path / "p", stamp, includes_overhead=True, rows=measured)
    profile = read(tmp_path / "p")
    assert len(profile.steps) == rows and profile.steps.repeats.min() == 5
    judged = {one.phase: one for one in held_out_whole_steps(profile.steps)}
    assert judged["decode"].mean_percent < 5.0 and judged["prefill"].mean_percent < 15.0


def test_splitwise_has_one_model_on_two_gpus() -> None:
    with pytest.raises(HardwareError, match="llama2_70b on a100_80g and h100 alone"):
        splitwise_steps(Path("none"), "h200", "llama2_70b", 8)
