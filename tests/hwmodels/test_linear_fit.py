"""The linear rung from operation tables: made-up tables it must meet, unseen measured lines within 5 %."""

import os
from dataclasses import astuple, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hwmodels.catalogue import LINEAR_COMPOSED_FILE, load_gpu, load_llm, read_yaml
from hwmodels.errors import HardwareError
from hwmodels.importers import ImportRequest, import_profile
from hwmodels.profiles.profile import Curve, Lattice, Profile
from hwmodels.profiles.profile_file import save_profile
from hwmodels.step_times.held_out import held_out_errors
from hwmodels.step_times.linear_catalogue import LinearKey, linear_entry, linear_keys, linear_step_model
from hwmodels.step_times.linear_fit import LinearFit, fit_linear, linear_model
from hwmodels.step_times.linear_step import (
    DecodeLine,
    TiledStepModel,
)
from hwmodels.step_times.step_time import StepLimits
from scripts import fit_step_times
from tests.worlds.linear_profile import (
    CHUNK,
    STAMP,
    TRUTH,
    attention_s,
    tiny_profile,
)

PROFILES = Path(os.environ.get("SERVETWIN_PROFILES", ""))
measured = pytest.mark.skipif(
    not (PROFILES / "llmservingsim").is_dir(), reason="SERVETWIN_PROFILES names no folder of measured tables"
)
# Those of linear_composed.yaml are what a command prints: tests/hwmodels/test_linear_composed.py.
COMPOSED = {(one["gpu"], one["llm"], one["tp"]) for one in read_yaml(LINEAR_COMPOSED_FILE)}
FITTED = [key for key in linear_keys() if "fitted_profile" in linear_entry(key) and key not in COMPOSED]
MIXED = [key for key in FITTED if "mixed_attention" in linear_entry(key)]


@cache
def profile_of(key: LinearKey) -> Profile:
    """The measured profile that ``key`` was fitted to."""
    of = linear_entry(key)["fitted_profile"]
    beside = PROFILES / of["aiconfigurator"] if "aiconfigurator" in of else None
    request = ImportRequest(
        path=PROFILES / of["path"],
        gpu=key.gpu,
        llm=key.llm,
        tp=key.tp,
        engine_version=of.get("engine_version"),
        aiconfigurator=beside,
    )
    return import_profile(of["format"], request)


@cache
def fit_of(key: LinearKey) -> LinearFit:
    return fit_linear(profile_of(key))


# Made-up tables.


def test_the_fit_meets_tables_made_of_its_own_lines() -> None:
    fit = fit_linear(tiny_profile())
    assert (fit.dense.tile_tokens, fit.prefill.tile_tokens) == (128, 256)
    assert fit.dense.floor_s == pytest.approx(TRUTH.dense.floor_s, rel=0.01)
    assert fit.dense.per_token_s == pytest.approx(TRUTH.dense.per_token_s, rel=0.01)
    assert fit.prefill.per_square_token_s == pytest.approx(CHUNK.per_square_token_s, rel=0.01)
    assert fit.decode.per_context_token_s == pytest.approx(TRUTH.decode.per_context_token_s, rel=0.02)
    assert fit.decode.least_per_sequence_s == pytest.approx(TRUTH.decode.least_per_sequence_s, rel=0.05)
    assert TRUTH.mixed is not None and fit.mixed is not None
    assert fit.mixed.per_context_token_s == pytest.approx(TRUTH.mixed.per_context_token_s, rel=0.05)
    assert fit.mixed.reread_per_context_token_s == pytest.approx(6e-7, rel=0.05)
    assert fit.mixed.reread_free_s == pytest.approx(0.2, rel=0.1)
    model = linear_model(tiny_profile())
    found, best = (held_out_errors(tiny_profile(), lambda _, m=one: m) for one in (model, TRUTH))
    # The judge's dense staircase is not quite the truth's, so that even the truth is a little off.
    for mine, least in zip(found, best, strict=True):
        assert mine.mean_percent == pytest.approx(least.mean_percent, abs=0.2)


def test_sequences_take_a_block_of_the_cache_however_short_they_are() -> None:
    line = DecodeLine(1e-4, 5e-6, 1.4e-7, 3e-7, 3e-5)
    flat, rising = line.pieces(10, 10_000)
    assert (flat.intercept_s, flat.slope_s_per_token) == pytest.approx((1e-4 + 3e-4, 0.0))
    assert (rising.intercept_s, rising.slope_s_per_token) == pytest.approx((1e-4 + 5e-5, 1.4e-7))
    end = flat.context_limit
    lines = [rising.intercept_s + rising.slope_s_per_token * total for total in (end, end + 1)]
    assert lines[0] <= flat.intercept_s < lines[1]
    (only,) = line.pieces(10, 1000)
    assert (only.context_limit, only.slope_s_per_token) == (1000, 0.0)
    (only,) = DecodeLine(1e-4, 5e-6, 1.4e-7, 3e-7).pieces(1, 1000)
    assert (only.intercept_s, only.slope_s_per_token) == pytest.approx((1.05e-4, 3e-7))


def test_the_fit_is_deterministic() -> None:
    assert fit_linear(tiny_profile()) == fit_linear(tiny_profile())


def test_without_mixed_steps_parts_add() -> None:
    model = linear_model(tiny_profile(mixed=False))
    assert model.interplay is None
    assert model.limits == StepLimits(64, 65_536, 2048, 5120)


def test_without_cached_prompts_later_chunks_are_differences() -> None:
    tables = tiny_profile().tables
    prefill = tuple(Lattice((one.axes[0], (0,)), one.values[:, :1]) for one in tables.prefill)
    fit = fit_linear(Profile(STAMP, replace(tables, prefill=prefill, mixed=())))
    assert fit.prefill.tile_tokens == 1


def test_all_reduces_are_part_of_the_dense_lines() -> None:
    profile = tiny_profile()
    counts = profile.tables.dense.counts
    slow = replace(profile.tables, all_reduce=Curve(counts, tuple(1e-2 + 0.0 * count for count in counts)))
    bare, reduced = linear_model(profile), linear_model(replace(profile, tables=slow))
    for step in ((0, 0, 8), (1024, 1, 0)):
        assert reduced.dense_s(*step) == pytest.approx(bare.dense_s(*step) + 1e-2, rel=0.02)


def test_a_profile_without_decode_attention_is_refused() -> None:
    profile = tiny_profile()
    with pytest.raises(HardwareError, match="no decode attention times"):
        fit_linear(replace(profile, tables=replace(profile.tables, decode=(), mixed=())))


def test_the_command_prints_the_fit_of_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "profile.json"
    save_profile(tiny_profile(), path)
    assert fit_step_times.main([str(path)]) == 0
    out = capsys.readouterr().out
    assert "tile_tokens=256" in out and "decode 13 held out" in out


# Measured tables.


@measured
@pytest.mark.parametrize("key", FITTED, ids=str)
def test_committed_coefficients_are_what_the_fit_gives(key: LinearKey) -> None:
    fit, model = fit_of(key), linear_step_model(key)
    assert isinstance(model, TiledStepModel)
    shape = (512, 1, 64)
    made = TiledStepModel(
        dense=fit.dense,
        decode=fit.decode,
        prefill=fit.prefill,
        mixed=fit.mixed,
        limits=model.limits,
        measured=model.measured,
        source="fit",
        error_band="none",
    )
    assert made.dense_s(*shape) == pytest.approx(model.dense_s(*shape), rel=1e-4)
    assert fit.prefill.tile_tokens == model.prefill.tile_tokens
    assert made.prefill_attention_s(600, 900) == pytest.approx(model.prefill_attention_s(600, 900), rel=1e-4)
    for n in (1, 64):
        for total in (n, 64 * n, 256 * n, 4096 * n):
            here, there = (attention_s(one, n, total) for one in (made, model))
            assert here == pytest.approx(there, rel=1e-4)
    if fit.mixed is not None:
        assert model.mixed is not None
        here = fit.mixed.mixed_decode_attention_s(64, 100_000, 512, 0)
        assert here == pytest.approx(model.mixed.mixed_decode_attention_s(64, 100_000, 512, 0), rel=1e-4)


def nudged(profile: Profile, seed: int) -> Profile:
    """The profile with a rounding error on every time of its tables."""
    draw = np.random.default_rng(seed)

    def curve(one: Curve) -> Curve:
        return Curve(one.counts, tuple(s * (1.0 + 1e-14 * draw.standard_normal()) for s in one.seconds))

    def lattices(some: tuple[Lattice, ...]) -> tuple[Lattice, ...]:
        noise = [1.0 + 1e-14 * draw.standard_normal(one.values.shape) for one in some]
        return tuple(Lattice(one.axes, one.values * by) for one, by in zip(some, noise, strict=True))

    tables = profile.tables
    changed = replace(
        tables, dense=curve(tables.dense), head=curve(tables.head), decode=lattices(tables.decode),
        prefill=lattices(tables.prefill), mixed=lattices(tables.mixed),
    )  # fmt: skip
    return replace(profile, tables=changed)


@measured
@pytest.mark.parametrize("key", list(dict.fromkeys([*FITTED[:2], *MIXED[:2]])), ids=str)
def test_rounding_chooses_no_coefficient(key: LinearKey) -> None:
    """Kernels of linear algebra round each in their way; what ties must not follow them."""
    plain, other = fit_of(key), fit_linear(nudged(profile_of(key), seed=1))
    for one, two in (
        (plain.dense, other.dense),
        (plain.decode, other.decode),
        (plain.prefill, other.prefill),
    ):
        assert astuple(one) == pytest.approx(astuple(two), rel=1e-6, abs=1e-15)
    if plain.mixed is not None and other.mixed is not None:
        assert astuple(plain.mixed)[1:] == pytest.approx(astuple(other.mixed)[1:], rel=1e-6, abs=1e-15)


@measured
@pytest.mark.parametrize("key", FITTED, ids=str)
def test_unseen_lines_are_met_as_the_catalogue_declares(key: LinearKey) -> None:
    declared = linear_entry(key)["errors_percent"]
    found = {error.phase: error for error in held_out_errors(profile_of(key), linear_model)}
    assert set(found) == set(declared)
    for phase, error in found.items():
        of = declared[phase]
        got = (error.mean_percent, error.p95_percent)
        assert got == pytest.approx((of["held_out_mean"], of["held_out_p95"]), abs=0.05)
        assert error.mean_percent <= 5.0


@measured
def test_mixed_steps_were_measured_on_three_tables() -> None:
    assert len(MIXED) == 3
    for key in MIXED:
        assert load_gpu(key.gpu) and load_llm(key.llm)
        assert linear_step_model(key).interplay is not None
