"""``servetwin profile``: what it prints, what it refuses and how, and that it never destroys a file."""

import os
import re
from pathlib import Path

import pytest

from hwmodels.errors import HardwareError
from hwmodels.profiles.profile_file import load_profile, save_profile
from servetwin.cli.profile import profile
from serving.vocabulary.errors import UserError
from tests.worlds.profile_tables import small_profile, write_aiconfigurator, write_llmservingsim, write_mlp
from tests.worlds.refusals import refuses

PROFILES = Path(os.environ.get("SERVETWIN_PROFILES", ""))
Capture = pytest.CaptureFixture[str]


def words(folder: Path, out: Path, **changed: str) -> list[str]:
    given = {
        "format": "llmservingsim", "path": str(folder), "gpu": "rtx4090", "model": "llama3_1_8b", "tp": "1",
        "out": str(out),
    } | changed  # fmt: skip
    return ["import", *(f"{key}={value}" for key, value in given.items())]


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    out = tmp_path / "profile, of 4090.json"
    assert profile(words(write_llmservingsim(tmp_path), out)) == 0
    return out


def test_import_writes_a_profile_and_prints_its_stamp(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "p.json"
    assert profile(words(write_llmservingsim(tmp_path), out)) == 0
    text = capsys.readouterr().out
    loaded = load_profile(out)
    assert loaded.profile.stamp.llm == "llama3_1_8b"
    for line in ("llama3_1_8b on rtx4090 tp=1", "vllm 0.19.0, bf16", f"digest: {loaded.digest}", "note: "):
        assert line in text
    assert text.endswith(f"profile in {out}\n")


def test_import_of_two_formats_at_once(tmp_path: Path, capsys: Capture) -> None:
    others = write_aiconfigurator(tmp_path)
    mlp = write_mlp(tmp_path / "Meta-Llama-3-8B" / "mlp.csv")
    common = {"gpu": "a100_80g", "model": "llama3_8b", "engine_version": "0.14.0"}
    for name, path, more in (("aiconfigurator", others, {}), ("vidur", mlp, {"aiconfigurator": str(others)})):
        out = tmp_path / f"{name}.json"
        assert profile(words(path, out, format=name, **common, **more)) == 0
        assert load_profile(out).profile.stamp.gpu == "a100_80g"


def test_import_replaces_a_file_only_when_told_to(imported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "RTX4090" / "meta-llama" / "Llama-3.1-8B"
    before = imported.read_bytes()
    with pytest.raises(UserError, match=r"out=.* exists: write another name, or overwrite=true"):
        profile(words(folder, imported))
    refuses(UserError, "exists", profile, words(folder, imported, overwrite="false"))
    assert imported.read_bytes() == before
    imported.write_text("something else", encoding="utf-8")
    assert profile(words(folder, imported, overwrite="true")) == 0
    assert imported.read_bytes() == before, "the same tables give the same bytes"
    with pytest.raises(UserError, match="is a folder: write out= with the name of a file in it"):
        profile(words(folder, tmp_path, overwrite="true"))


def test_a_failed_import_leaves_no_file_and_keeps_the_old_one(imported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "RTX4090" / "meta-llama" / "Llama-3.1-8B"
    before = imported.read_bytes()
    (folder / "tp1" / "dense.csv").unlink()
    refuses(HardwareError, r"dense\.csv", profile, words(folder, imported, overwrite="true"))
    refuses(HardwareError, r"dense\.csv", profile, words(folder, tmp_path / "new.json"))
    assert imported.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["RTX4090", imported.name]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"gpu": "rtx4091"}, "unknown GPU 'rtx4091': write 'rtx4090'"),
        ({"model": "llama3_9b"}, "unknown model 'llama3_9b': write 'llama3_"),
        ({"format": "llmserving"}, "unknown profile format 'llmserving'; write 'llmservingsim'"),
        ({"tp": "one"}, "tp=one is wrong: tp wants an integer"),
        ({"tp": "0"}, "tp=0 does not divide"),
        ({"overwrite": "maybe"}, "overwrite=maybe is wrong: overwrite wants true or false"),
        ({"modle": "x"}, "unknown key 'modle' for servetwin profile import: write model=VALUE"),
        ({"gpu": ""}, "gpu= has no value: write gpu=VALUE"),
    ],
)
def test_import_refuses(tmp_path: Path, changed: dict[str, str], sentence: str) -> None:
    out = tmp_path / "p.json"
    with pytest.raises((UserError, HardwareError), match=sentence):
        profile(words(write_llmservingsim(tmp_path), out, **changed))
    assert not out.exists()


@pytest.mark.parametrize("key", ["format", "path", "gpu", "model", "tp", "out"])
def test_import_names_what_is_missing(tmp_path: Path, key: str) -> None:
    given = [word for word in words(tmp_path, tmp_path / "p.json") if not word.startswith(f"{key}=")]
    refuses(UserError, f"import lacks {key}: write {key}=", profile, given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["chek"], "there is no command 'profile chek': write servetwin profile check"),
        (["import", "format"], "'format' has no '=': write format=VALUE"),
        (["import", "tp=1", "tp=2"], "tp is given twice"),
        (["check"], "check lacks path: write path=FILE"),
        (["check", "file=x"], "unknown key 'file' for servetwin profile check"),
        (["fit"], "fit lacks path: write path=FILE"),
        (["fit", "path=a", "path=b"], "path is given twice"),
        (["fit", "path=none.json"], r"cannot read none\.json"),
    ],
)
def test_words_that_make_no_sense(given: list[str], sentence: str) -> None:
    refuses((UserError, HardwareError), sentence, profile, given)


@pytest.mark.parametrize(
    ("given", "status"), [([], 2), (["--help"], 0), (["import", "-h"], 0), (["help"], 0)]
)
def test_help_shows_an_example_that_names_every_key(given: list[str], status: int, capsys: Capture) -> None:
    assert profile(given) == status
    text = capsys.readouterr().out
    for word in ("import format=llmservingsim path=", "gpu=", "model=", "tp=1", "out=", "check path=", "fit"):
        assert word in text


def test_check_prints_stamp_ranges_and_a_table_of_errors(imported: Path, capsys: Capture) -> None:
    capsys.readouterr()
    assert profile(["check", f"path={imported}"]) == 0
    text = capsys.readouterr().out
    assert "dense: 1 to 256 tokens, 6 points" in text
    assert "mixed: new 16 to 64 (3), cached tokens 0 to 64 (3)" in text and "81 of 81 points" in text
    assert "all_reduce: not measured" in text and "skew: new tokens 0 to 16 (2)" in text
    assert "| model | GPU | tp | phase | rung |" in text
    rungs = {match.group(1, 2) for match in re.finditer(r"\| rtx4090 \| 1 \| (\w+) \| (\w+) \|", text)}
    phases = ("decode", "prefill", "mixed")
    wanted = {(phase, rung) for phase in phases for rung in ("op_table", "linear")}
    assert rungs == wanted


def test_check_of_a_folder_makes_one_table(imported: Path, tmp_path: Path, capsys: Capture) -> None:
    (imported.parent / "second.json").write_bytes(imported.read_bytes())
    capsys.readouterr()
    assert profile(["check", f"path={tmp_path}", f"path={imported}"]) == 0
    text = capsys.readouterr().out
    assert text.count("digest:") == 3 and text.count("| model | GPU |") == 1


def test_check_of_a_folder_without_profiles_is_refused(tmp_path: Path) -> None:
    refuses(UserError, r"is a folder without \.json files", profile, ["check", f"path={tmp_path}"])


def test_check_tells_a_stale_profile_and_fit_refuses_it(imported: Path, capsys: Capture) -> None:
    text = imported.read_text(encoding="utf-8").replace('"gpu":"rtx4090"', '"gpu":"h100"')
    imported.write_text(text, encoding="utf-8")
    capsys.readouterr()
    assert profile(["check", f"path={imported}"]) == 1
    assert "problem: " in (shown := capsys.readouterr().out) and "is stale" in shown
    refuses(HardwareError, r"is stale.*import it again", profile, ["fit", f"path={imported}"])


def test_fit_prints_the_coefficients(imported: Path, capsys: Capture) -> None:
    capsys.readouterr()
    assert profile(["fit", f"path={imported}"]) == 0
    text = capsys.readouterr().out
    assert "dense:\n" in text and re.search(r"^  per_token_s: \d", text, re.MULTILINE)


def test_a_rung_that_cannot_be_judged_does_not_hide_the_others(tmp_path: Path, capsys: Capture) -> None:
    """The hand-made profile is too small for some rung, and still it is shown."""
    save_profile(small_profile(), tmp_path / "p.json")
    assert profile(["check", f"path={tmp_path / 'p.json'}"]) == 0
    text = capsys.readouterr().out
    assert "decode: sequences 1 to 2 (2), context tokens of each 16 to 32 (2); 3 of 4 points" in text


@pytest.mark.skipif(
    not (PROFILES / "llmservingsim").is_dir(),
    reason="SERVETWIN_PROFILES names no folder with measured tables",
)
def test_the_published_tables_give_a_table_of_errors(tmp_path: Path, capsys: Capture) -> None:
    folder = PROFILES / "llmservingsim" / "RTX4090" / "meta-llama" / "Llama-3.1-8B"
    out = tmp_path / "p.json"
    assert profile(words(folder, out)) == 0
    assert profile(["check", f"path={out}"]) == 0
    text = capsys.readouterr().out
    found = {match.group(1): float(match.group(2)) for match in re.finditer(
        r"\| (\w+) \| op_table \| \d+ \| ([\d.]+) \|", text)}  # fmt: skip
    assert set(found) == {"decode", "prefill", "mixed"} and max(found.values()) < 10.0
