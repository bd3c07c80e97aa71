"""Profiles on disk: what comes back, what is refused and how, and whether a profile fits a run."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Profile
from hwmodels.profiles.profile_check import profile_problems, require_profile, same_shape
from hwmodels.profiles.profile_file import LoadedProfile, load_profile, save_profile
from tests.worlds.profile_tables import small_profile
from tests.worlds.refusals import refuses


def assert_same(one: Profile, other: Profile) -> None:
    assert one.stamp == other.stamp
    for name in ("dense", "head", "all_reduce"):
        assert getattr(one.tables, name) == getattr(other.tables, name)
    for name in ("decode", "prefill", "mixed", "skew"):
        left, right = getattr(one.tables, name), getattr(other.tables, name)
        for a, b in zip(left, right) if name != "skew" else [(left, right)]:
            assert a.axes == b.axes
            np.testing.assert_array_equal(a.values, b.values)


def test_a_saved_profile_comes_back_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    digest = save_profile(small_profile(), path)
    loaded = load_profile(path)
    assert_same(loaded.profile, small_profile())
    assert loaded.digest == digest
    assert loaded.problems == ()


def test_equal_profiles_are_equal_bytes_and_leave_nothing_else(tmp_path: Path) -> None:
    for name in ("a.json", "b.json", "b.json"):
        save_profile(small_profile(), tmp_path / name)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]


def test_the_digest_feels_every_number_and_word(tmp_path: Path) -> None:
    profiles = [small_profile(), small_profile(tp=4), small_profile(notes=())]
    digests = {save_profile(profile, tmp_path / "p.json") for profile in profiles}
    assert len(digests) == 3 and {len(digest) for digest in digests} == {64}


def test_a_profile_without_the_optional_tables_comes_back(tmp_path: Path) -> None:
    whole = small_profile()
    bare = replace(whole, tables=replace(whole.tables, all_reduce=None, mixed=(), skew=None))
    save_profile(bare, tmp_path / "p.json")
    tables = load_profile(tmp_path / "p.json").profile.tables
    assert (tables.all_reduce, tables.mixed, tables.skew) == (None, (), None)


def test_a_broken_profile_is_not_saved(tmp_path: Path) -> None:
    broken = replace(small_profile(), stamp=replace(small_profile().stamp, source=" "))
    refuses(HardwareError, r"stamp\.source is ' '; write a text", save_profile, broken, tmp_path / "p.json")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named_and_keeps_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match="name a file in a folder that exists"):
        save_profile(small_profile(), tmp_path / "none" / "p.json")
    (tmp_path / "folder").mkdir()
    refuses(HardwareError, "cannot write", save_profile, small_profile(), tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def edited(tmp_path: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    path = tmp_path / "p.json"
    save_profile(small_profile(), path)
    document = json.loads(path.read_text(encoding="utf-8"))
    edit(document)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def put(value: object, *keys: Any) -> Callable[[dict[str, Any]], object]:
    def edit(document: dict[str, Any]) -> None:
        inner: Any = document
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    return edit


BROKEN = [
    (put("other", "format"), "is not a profile .*'servetwin profile import' wrote"),
    (put(2, "schema"), "schema is 2 and this program reads 1; import"),
    (put(True, "schema"), "schema is True"),
    (put(1, "extra"), "has an unknown key 'extra'; write only format, schema"),
    (lambda document: document.pop("tables"), "lacks the key 'tables'"),
    (put(7, "digest"), "digest is not a text"),
    (put([], "stamp"), "stamp must be an object with the keys gpu"),
    (put(0, "stamp", "tp"), r"stamp\.tp is 0; write a whole number of at least 1"),
    (put("2", "stamp", "tp"), r"stamp\.tp is '2'; write a whole number"),
    (put("", "stamp", "gpu"), r"stamp\.gpu is ''; write a text"),
    (put([["a"]], "stamp", "files"), r"stamp\.files\[0\] must be a file name and its sha256"),
    (put([1], "stamp", "notes"), r"stamp\.notes\[0\] is 1; write a text"),
    (lambda document: document["tables"].pop("skew"), "tables lacks the key 'skew'"),
    (put(None, "tables", "dense"), r"tables\.dense must be an object"),
    (put([1, 1, 2], "tables", "dense", "counts"), r"dense\.counts must be .* each above the one before"),
    (put([0, 1, 2], "tables", "dense", "counts"), r"counts\[0\] is 0; write a whole number of at least 1"),
    (put([1.5, 2, 3], "tables", "dense", "counts"), r"counts\[0\] is 1\.5"),
    (put([1.0, 2.0], "tables", "dense", "seconds"), "has 2 numbers for 3 counts"),
    (put([1.0, None, 2.0], "tables", "dense", "seconds"), r"seconds\[1\] is None; write a positive finite"),
    (put([1.0, 0.0, 2.0], "tables", "dense", "seconds"), r"seconds\[1\] is 0\.0; write a positive finite"),
    (put(-1.0, "tables", "head", "seconds", 0), r"tables\.head\.seconds\[0\] is -1\.0"),
    (put(10**400, "tables", "head", "seconds", 0), r"seconds\[0\] is 1000"),
    (put([], "tables", "decode"), r"tables\.decode is empty"),
    (put({}, "tables", "prefill"), r"tables\.prefill must be a list"),
    (put([[1, 2]], "tables", "decode", 0, "axes"), "has 1 axes; a lattice of decode has 2"),
    (put([[2, 1], [16, 32]], "tables", "decode", 0, "axes"), r"decode\[0\]\.axes\[0\] must be at least one"),
    (put([[1, 2], [0, 32]], "tables", "decode", 0, "axes"), r"axes\[1\]\[0\] is 0; .* at least 1"),
    (put([[1.0, 2.0]], "tables", "decode", 0, "values"), r"values must be nested lists of shape 2x2"),
    (put([[1.0], [1.0]], "tables", "decode", 0, "values"), r"shape 2x2, .*level 2 differs"),
    (put("1", "tables", "decode", 0, "values", 1, 0), r"decode\[0\]\.values\[1\]\[0\] is '1'; write a pos"),
    (put(0, "tables", "decode", 0, "values", 0, 0), r"values\[0\]\[0\] is 0; write a positive"),
    (put([[None] * 2] * 2, "tables", "decode", 0, "values"), "holds only null"),
    (put(1.5, "tables", "skew", "values", 0, 1), r"skew\.values\[0\]\[1\] is 1\.5; write a share from 0"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "sentence"), BROKEN)
@pytest.mark.parametrize("force", [False, True])
def test_a_broken_document_is_refused_even_by_force(
    tmp_path: Path, edit: Callable[[dict[str, Any]], object], sentence: str, force: bool
) -> None:
    path = edited(tmp_path, edit)
    with pytest.raises(HardwareError, match=sentence) as refused:
        load_profile(path, force)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": 1}',
        '{"a": 1, "a": 2}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        "[" * 100_000,
        b"\xff",
    ],
)
def test_what_is_no_profile_at_all_is_refused_in_one_sentence(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    refuses(HardwareError, r"p\.json", load_profile, path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    refuses(HardwareError, r"cannot read .*p\.json \(No such file", load_profile, tmp_path / "p.json")


@pytest.mark.parametrize(
    "edit", [put(0.5, "tables", "dense", "seconds", 2), put("a10", "stamp", "gpu"), put("0" * 64, "digest")]
)
def test_a_changed_profile_is_stale(tmp_path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    path = edited(tmp_path, edit)
    refuses(HardwareError, r"p\.json is stale: .*import it again", load_profile, path)
    loaded = load_profile(path, force=True)
    assert len(loaded.problems) == 1 and "is stale" in loaded.problems[0]
    assert loaded.digest == save_profile(loaded.profile, tmp_path / "used.json"), (
        "the digest of what is used, not of what was"
    )


RUN: dict[str, Any] = {
    "gpu": "a100_80g",
    "llm": "llama3_8b",
    "tp": 2,
    "engine": "vllm",
    "engine_version": "0.14.0",
    "precision": "bf16",
}


def test_a_profile_that_fits_has_no_problems() -> None:
    stamp = small_profile().stamp
    assert profile_problems(stamp, **RUN) == ()
    assert profile_problems(stamp, **RUN | {"engine_version": "v0.14.0", "precision": "float16"}) == ()
    assert profile_problems(stamp, **RUN | {"engine_version": None}) == ()


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("gpu", "h100", "it was measured on a100_80g, and the run has h100"),
        ("llm", "llama2_7b", "it was measured for llama3_8b, and the run serves llama2_7b"),
        ("llm", "no_such_model", "it was measured for llama3_8b"),
        ("tp", 4, "it was measured at tp=2, and the run has tp=4"),
        ("engine", "sglang", "it was measured with vllm, and the run imitates sglang"),
        ("engine_version", "0.15.0", "stale: measured with vllm 0.14.0, and the run imitates vllm 0.15.0"),
        ("precision", "fp8", "stale: measured in bf16, and the run computes in fp8"),
    ],
)
def test_each_misfit_is_one_problem(key: str, value: Any, sentence: str) -> None:
    (problem,) = profile_problems(small_profile().stamp, **RUN | {key: value})
    assert sentence in problem


def test_models_of_one_shape_are_the_same() -> None:
    assert same_shape("llama3_8b", "llama3_1_8b") and same_shape("llama3_1_8b", "llama3_8b")
    assert not same_shape("llama3_8b", "llama2_7b")
    assert same_shape("unknown", "unknown") and not same_shape("unknown", "llama3_8b")


def test_a_run_is_refused_with_every_problem_at_once_unless_forced() -> None:
    loaded = LoadedProfile(small_profile(), "00", ("it was changed",))
    run: dict[str, Any] = {**RUN, "path": "p.json", "gpu": "h100", "engine_version": "0.15.0"}
    with pytest.raises(HardwareError) as refused:
        require_profile(loaded, **run)
    for word in ("p.json", "it was changed", "h100", "0.15.0", "engine.profile_force=true"):
        assert word in str(refused.value)
    forced = require_profile(loaded, **run, force=True)
    assert forced.profile is loaded.profile and len(forced.problems) == 3


def test_a_run_that_fits_gets_the_profile_as_it_is() -> None:
    loaded = LoadedProfile(small_profile(), "00")
    assert require_profile(loaded, path="p.json", **RUN) == loaded
