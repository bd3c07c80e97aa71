"""servetwin traces: every verb through the command's own entry, and every refusal as one sentence."""

import json
from pathlib import Path

import pytest

from servetwin.cli.main import run
from traces.load import load

ROWS = [(0.0, 10, 5), (0.5, 20, 6), (1.25, 30, 7), (30.0, 40, 8)]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    lines = [f"{at},{prompt},{output}" for at, prompt, output in ROWS]
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]) + "\n")
    return path


def test_without_a_verb_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert (run(["traces"]), run(["traces", "--help"]), run(["traces", "sample", "--help"])) == (2, 0, 0)
    assert capsys.readouterr().out.count("servetwin traces fetch NAME") == 3


def test_list_names_every_trace(capsys: pytest.CaptureFixture[str]) -> None:
    from servetwin.config.trace_options import trace_names

    assert run(["traces", "list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in trace_names() if name != "file")


def test_describe_prints_writes_json_and_draws(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture, data = tmp_path / "mine.png", tmp_path / "mine.json"
    assert run(["traces", "describe", str(mine), f"plot={picture}", f"json={data}"]) == 0
    text = capsys.readouterr().out
    assert "most in one second" in text and f"written: {picture}" in text
    assert picture.read_bytes().startswith(b"\x89PNG")
    found = json.loads(data.read_text())
    assert (found["requests"], found["duration_s"], found["peak_per_s"]) == (4, 30.0, 2)
    assert found["lengths"]["prompt_tokens"]["mean"] == 25.0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.csv", "mine.json", "mine.png"]


def test_describe_says_the_unit_of_times_and_takes_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(
        f'{{"timestamp": {at}, "input_length": 9, "output_length": 4}}\n' for at in (0.0, 0.25, 60.5)
    )
    path = tmp_path / "seconds.jsonl"
    path.write_text(rows)
    for words, unit, seconds, remark in (
        ((), "s", 60.5, True),
        (("time_unit=s",), "s", 60.5, False),
        (("trace.time_unit=ms",), "ms", 0.0605, False),
    ):
        assert run(["traces", "describe", str(path), *words]) == 0
        text = capsys.readouterr().out
        assert f"times in {unit}" in text and ("trace.time_unit=" in text) == remark
        assert run(["traces", "describe", str(path), *words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["duration_s"] == seconds


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_convert_keeps_every_request(
    mine: Path, tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / f"out{suffix}"
    assert run(["traces", "convert", str(mine), f"out={out}"]) == 0
    assert "4 requests in" in capsys.readouterr().out
    back, source = load("file", path=out), load("file", path=mine)
    for column in ("arrival_ns", "prompt_tokens", "output_tokens"):
        assert getattr(back, column).tolist() == getattr(source, column).tolist()


def test_sample_says_what_thinning_is_expected_to_give(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "part.csv"
    words = ["poisson", "requests=3000", "rate_per_s=5", "rate_scale=0.5", "seed=3", f"out={out}"]
    assert run(["traces", "sample", *words]) == 0
    text = capsys.readouterr().out
    assert "keeping each request with probability 0.5" in text and "thinned to 0.5x" in text
    assert 1400 < len(load("file", path=out)) < 1600


def test_sample_cuts_and_scales_reproducibly(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    words = [
        "azure_code_like",
        "window=busiest",
        "window_s=300",
        "rate_scale=2.5",
        "lengths=512x64",
        "seed=9",
    ]
    assert run(["traces", "sample", *words, f"out={first}"]) == 0
    assert run(["traces", "sample", *words, f"out={second}"]) == 0
    assert first.read_bytes() == second.read_bytes()
    assert set(load("file", path=first).prompt_tokens.tolist()) == {512}


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["describ"], "write servetwin traces describe"),
        (["describe"], "lacks a trace"),
        (["describe", "azure_cod"], "write azure_code if that is meant"),
        (["describe", "no/such.csv"], "no/such.csv does not exist"),
        (["describe", "poisson", "rate_pers=2"], "write rate_per_s=VALUE if that is meant"),
        (["describe", "poisson", "utilization=0.5"], "utilization needs a cluster"),
        (["describe", "poisson", "window_s=x"], "window_s wants a number"),
        (["describe", "poisson", "rate_scale=0"], "rate_scale=0.0 is out of range"),
        (["describe", "poisson", "plot=x.txt", "requests=9"], "plot=x.txt is no picture"),
        (["convert", "poisson"], "lacks out"),
        (["convert", "poisson", "out=x.xyz"], "write to=csv"),
        (["convert", "poisson", "out=x.csv", "to=burstgpt"], "cannot be written: write one of csv"),
        (["convert", "poisson", "out=no/such/x.csv"], "make no/such first"),
        (["convert", "poisson", "out=x.csv", "rate_scale=2"], "unknown key 'rate_scale'"),
        (["convert", "poisson", "out=x.csv", "exact=true"], "exact=true is for to=mooncake"),
        (["fetch"], "lacks a name"),
        (["fetch", "azure_conv", "to=x"], "write folder=FOLDER"),
        (["fetch", "mooncake_conversation"], "put it into data as conversation_trace.jsonl"),
        (["fetch", "nothing"], "nothing"),
        (["list", "all"], "leave 'all' out"),
    ],
)
def test_refusals_are_one_sentence_and_exit_2(
    words: list[str],
    part: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["traces", *words]) == 2
    said = capsys.readouterr().err
    assert part in said and said.count("\n") == 1
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_nothing_is_overwritten_unless_told(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = mine.read_bytes()
    assert run(["traces", "convert", "poisson", "requests=5", f"out={mine}"]) == 2
    assert "exists" in capsys.readouterr().err and mine.read_bytes() == before
    assert run(["traces", "convert", "poisson", "requests=5", f"out={mine}", "overwrite=true"]) == 0
    assert len(load("file", path=mine)) == 5
