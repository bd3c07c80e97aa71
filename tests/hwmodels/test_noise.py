"""Tables with bad points, or with flags that say what was not measured: what an import makes of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.errors import HardwareError
from hwmodels.importers import ImportRequest, import_profile
from hwmodels.importers.aiconfigurator_tables import Folder, read_messages
from hwmodels.profiles.profile import Curve, Lattice, Profile
from hwmodels.step_times.noise import FALL, bad_points, steadied
from hwmodels.step_times.select import step_model
from tests.worlds.linear_profile import tiny_profile
from tests.worlds.profile_tables import Row, write_aiconfigurator, write_llmservingsim

SIZES = np.array([float(1 << power) for power in range(10, 29)])
STEADY = 5e-6 + 4e-12 * SIZES


def spoiled(at: int, by: float) -> np.ndarray:
    seconds = STEADY.copy()
    seconds[at] *= by
    return seconds


@pytest.mark.parametrize(("at", "by"), [(3, 2.5), (15, 0.3), (1, 1.5), (9, 0.5), (17, 3.0)])
def test_a_single_bad_point_is_found(at: int, by: float) -> None:
    assert bad_points(SIZES, spoiled(at, by)).tolist() == [at]


def test_noise_and_steps_upwards_are_no_bad_points() -> None:
    assert not len(bad_points(SIZES, STEADY))
    wavy = STEADY * np.where(np.arange(len(SIZES)) % 2, 1.0, 1.0 + 0.9 * FALL)
    assert not len(bad_points(SIZES, wavy))
    assert not len(bad_points(SIZES, np.where(SIZES < 1 << 23, STEADY, 3 * STEADY)))
    # of two neighbours that fall the one farther from the others' line: 512 KiB between 8 RTX PRO 6000
    sizes = np.array([1 << power for power in (17, 18, 19, 20, 21, 22)], dtype=np.float64)
    assert bad_points(sizes, np.array([47.8, 84.8, 156.1, 131.5, 221.2, 345.5])).tolist() == [2]


def spiked(profile: Profile) -> tuple[Profile, tuple[int, int]]:
    """One decode time six times what it is."""
    (decode,) = profile.tables.decode
    values = decode.values.copy()
    at = (1, 2)
    values[at] *= 6.0
    tables = replace(profile.tables, decode=(Lattice(decode.axes, values),))
    return Profile(profile.stamp, tables), at


def test_a_spike_of_a_lattice_is_bridged_and_said() -> None:
    clean = tiny_profile()
    bad, at = spiked(clean)
    mended = steadied(bad)
    found, truth = mended.tables.decode[0].values, clean.tables.decode[0].values
    assert found[at] == pytest.approx(truth[at], rel=0.2)
    found[at] = truth[at]
    assert np.array_equal(found, truth, equal_nan=True)
    (note,) = [note for note in mended.stamp.notes if note not in clean.stamp.notes]
    assert note.startswith("decode attention: 1 of ") and "times are bad" in note
    assert steadied(clean) is clean


def test_no_step_becomes_slow_for_one_bad_point() -> None:
    gpu, llm = load_gpu("rtx4090"), load_llm("llama3_1_8b")
    clean = tiny_profile()
    bad, at = spiked(clean)
    n, context = (axis[i] for axis, i in zip(clean.tables.decode[0].axes, at))

    def attention_s(profile: Profile) -> float:
        pieces = step_model("op_table", gpu, llm, tp=1, profile=profile).decode_attention(n)
        piece = next(piece for piece in pieces if n * context <= piece.context_limit)
        return piece.intercept_s + piece.slope_s_per_token * n * context

    assert attention_s(bad) > 2 * attention_s(clean)
    assert attention_s(steadied(bad)) == pytest.approx(attention_s(clean), rel=0.2)


def test_curves_leave_bad_points_out_and_too_many_are_refused() -> None:
    profile = tiny_profile()
    counts = tuple(range(1, 21))
    seconds = [1e-3 * (10 + count) for count in counts]
    seconds[7] *= 2
    one = replace(profile.tables, dense=Curve(counts, tuple(seconds)))
    mended = steadied(Profile(profile.stamp, one))
    assert mended.tables.dense.counts == (*counts[:7], *counts[8:])
    assert "dense: left out at 8 tokens, where more work takes over 20% less" in mended.stamp.notes
    wild = tuple(1e-3 * (1 + count % 3) for count in counts)
    with pytest.raises(HardwareError, match="the head table over sequences is too noisy: "):
        steadied(Profile(profile.stamp, replace(profile.tables, head=Curve(counts, wild))))


def test_a_bad_all_reduce_is_left_out_with_a_note(tmp_path: Path) -> None:
    def spoil(name: str, rows: list[Row]) -> list[Row]:
        if name != "custom_allreduce_perf":
            return rows
        bad = {"message_size": 2048, "latency": 0.9}
        return [*rows, *({**row, **bad} for row in rows if row["message_size"] == 1024)]

    folder = write_aiconfigurator(tmp_path, spoil)
    request = ImportRequest(path=folder, gpu="a100_80g", llm="llama3_8b", tp=2)
    assert read_messages(Folder(folder, request), 2).left_out == (4096,)
    stamp = import_profile("aiconfigurator", request).stamp
    assert any("the time at 4096 bytes is left out" in note for note in stamp.notes)


def test_tables_that_say_skew_was_not_profiled_have_no_skew(tmp_path: Path) -> None:
    told = write_llmservingsim(tmp_path, meta="skew_profile:\n  enabled: false\n")
    found = import_profile("llmservingsim", ImportRequest(path=told, gpu="rtx4090", llm="llama3_1_8b", tp=1))
    assert found.tables.skew is None
    assert any("meta.yaml says it was not profiled" in note for note in found.stamp.notes)
    assert not any(name.endswith("skew_fit.csv") for name, _ in found.stamp.files)
    model = step_model("op_table", load_gpu("rtx4090"), load_llm("llama3_1_8b"), tp=1, profile=found)
    assert model.interplay is not None and not model.interplay.skewed
    measured = write_llmservingsim(tmp_path / "own", meta="skew_profile:\n  enabled: true\n")
    kept = import_profile(
        "llmservingsim", ImportRequest(path=measured, gpu="rtx4090", llm="llama3_1_8b", tp=1)
    )
    assert kept.tables.skew is not None


def test_rows_of_a_sliding_window_are_not_full_attention(tmp_path: Path) -> None:
    def with_windows(name: str, rows: list[Row]) -> list[Row]:
        if not name.endswith("attention_perf"):
            return rows
        full = [{**row, "window_size": 0} for row in rows]
        return [*full, *({**row, "window_size": 128, "latency": 1e-4} for row in rows)]

    request = ImportRequest(path=write_aiconfigurator(tmp_path / "a"), gpu="a100_80g", llm="llama3_8b", tp=1)
    plain = import_profile("aiconfigurator", request).tables
    both = replace(request, path=write_aiconfigurator(tmp_path / "b", with_windows))
    found = import_profile("aiconfigurator", both).tables
    for one, other in ((plain.decode, found.decode), (plain.prefill, found.prefill)):
        assert np.array_equal(one[0].values, other[0].values, equal_nan=True)


def test_prompts_faster_than_the_datasheet_are_refused_or_taken_from_a_gpu_alike(tmp_path: Path) -> None:
    def at_once(name: str, rows: list[Row]) -> list[Row]:
        fast = name == "context_attention_perf"
        return [{**row, "latency": 1e-9} for row in rows] if fast else rows

    folder = write_aiconfigurator(tmp_path / "a", at_once)
    request = ImportRequest(path=folder, gpu="a100_80g", llm="llama3_8b", tp=1)
    with pytest.raises(HardwareError, match="times as fast as the datasheet's peak, so it cannot be used"):
        import_profile("aiconfigurator", request)
    alike = write_aiconfigurator(tmp_path / "b")
    found = import_profile("aiconfigurator", replace(request, aiconfigurator=alike))
    assert any(note.startswith("prefill attention: that of NVIDIA A100") for note in found.stamp.notes)
    plain = import_profile("aiconfigurator", replace(request, path=alike))
    assert np.array_equal(found.tables.prefill[0].values, plain.tables.prefill[0].values)
    other = write_aiconfigurator(
        tmp_path / "c", lambda _, rows: [{**row, "device": "NVIDIA L40S"} for row in rows]
    )
    with pytest.raises(HardwareError, match="was measured on NVIDIA L40S and cannot stand for a100_80g"):
        import_profile("aiconfigurator", replace(request, aiconfigurator=other))
