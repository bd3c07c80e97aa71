"""servetwin from the command line, misused: one sentence that helps, exit status 2, nothing left behind."""

import errno
import gzip
import os
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from servetwin.cli import main as cli
from servetwin.run import simulate as simulation
from servetwin.run import write_results as results
from tests.worlds.processes import patience_s, started, wait_until

ROOT = Path(__file__).resolve().parents[2]
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
GOOD = "2023-11-16 18:15:46.6805900,374,44\n"
LATER = "2023-11-16 18:15:47.6805900,374,44\n"
DRAWN = ("trace=azure_conv_like", "trace.requests=30")
# Takes minutes, so that a signal always finds it running.
ENDLESS = ("trace=azure_conv_like", "trace.requests=100000", "engine.exact=true", "journal=true")

Captured = pytest.CaptureFixture[str]


def below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def sentence_of(stderr: str, command: str = "servetwin") -> str:
    """The one printable line of a refusal."""
    assert stderr.startswith(f"{command}: ") and stderr.endswith("\n")
    line = stderr[len(command) + 2 : -1]
    assert line and line.isprintable(), "one line"
    return line


def refusal(capsys: Captured, folder: Path, *words: str, status: int = 2) -> str:
    """The sentence of ``servetwin simulate``; nothing on stdout, nothing new in ``folder``."""
    before = below(folder)
    capsys.readouterr()
    named = () if any(word.startswith("out=") for word in words) else (f"out={folder / 'new' / 'run'}",)
    assert cli.run(["simulate", *words, *named]) == status
    told = capsys.readouterr()
    assert told.out == ""
    assert below(folder) == before
    return sentence_of(told.err)


def rows(*lines: str) -> bytes:
    return (HEADER + "".join(lines)).encode()


def row(stamp: str = "2023-11-16 18:15:47", prompt: str = "5", output: str = "6") -> bytes:
    return rows(GOOD, f"{stamp},{prompt},{output}\n")


ZIPPED = gzip.compress(rows(*[GOOD] * 500), mtime=0)
# (file name, its bytes, what the sentence must hold beside the file's name)
BAD_TRACES: list[tuple[str, bytes, tuple[str, ...]]] = [
    ("t.csv", b"", ("is empty", "write the header")),
    ("t.csv", b"\n\n", ("is empty",)),
    ("t.csv", HEADER.encode(), ("no requests", "add one line")),
    ("t.csv", GOOD.encode(), ("line 1", "TIMESTAMP", "is missing", "write the header")),
    ("t.csv", b"TIMESTAMP,ContextTokens\n2023-11-16 18:15:46,5\n", ("column GeneratedTokens", "is missing")),
    ("t.csv", HEADER.replace(",C", ",X,C").encode() + GOOD.encode(), ("'X' is unknown", "keep only")),
    ("t.csv", HEADER.replace("\n", ",TIMESTAMP\n").encode() + GOOD.encode(), ("column TIMESTAMP", "twice")),
    ("t.csv", HEADER.lower().encode() + GOOD.encode(), ("column TIMESTAMP", "is missing")),
    ("t.csv", HEADER.replace(",", ";").encode(), ("column TIMESTAMP", "is missing")),
    ("t.csv", row(prompt="-5"), ("line 3", "ContextTokens", "'-5' is negative", "write a whole number")),
    ("t.csv", row(output="-1"), ("line 3", "GeneratedTokens", "'-1' is negative")),
    ("t.csv", row(prompt="NaN"), ("line 3", "ContextTokens", "'NaN'", "write a whole number")),
    ("t.csv", row(prompt=""), ("line 3", "ContextTokens", "value is missing")),
    ("t.csv", row(prompt="inf"), ("line 3", "'inf' is not a whole number")),
    ("t.csv", row(prompt="3.5"), ("line 3", "has a fraction")),
    ("t.csv", row(prompt="0"), ("line 3", "0 prompt tokens", "delete the line")),
    ("t.csv", row(prompt="9" * 30), ("line 3", "more than 10000000")),
    ("t.csv", row(output="10000001"), ("line 3", "GeneratedTokens", "more than 10000000")),
    ("t.csv", row(stamp="2023-02-30 18:15:46"), ("line 3", "TIMESTAMP", "exists", "write it like")),
    ("t.csv", row(stamp="1700000000"), ("line 3", "is not a timestamp", "write it like")),
    ("t.csv", row(stamp="2023-11-16 18:15:47+00:00"), ("line 3", "has a time zone", "write all with")),
    ("t.csv", rows(GOOD, "2023-11-16 18:15:47,5\n"), ("line 3", "2 fields are too few", "write three")),
    ("t.csv", rows(GOOD, "2023-11-16 18:15:47,5,6,7\n"), ("line 3", "too many")),
    ("t.csv", rows(GOOD, "2023-11-16 18:1"), ("line 3", "too few")),
    ("t.csv", rows(GOOD, "\n", LATER), ("line 3", "is empty", "delete it")),
    ("t.csv", rows("2023-11-16 18:15:46,5,0\n"), ("every request is left out", "zero output tokens")),
    ("t.csv", rows(GOOD).decode().encode("utf-16"), ("line 1", "not UTF-8", "UTF-8")),
    ("t.csv", rows(GOOD) + b"\0\0\0\n", ("line 3", "NUL byte")),
    ("t.csv", HEADER.encode() + b"x" * 5_000_000, ("a line of over", "one request per line")),
    ("t.csv", b"<!DOCTYPE html><title>404</title>\n", ("line 1", "is missing")),
    ("t.csv", ZIPPED, ("gzip", ".csv.gz")),
    ("t.csv.gz", ZIPPED[:-20], ("truncated gzip", "fetch or copy it again")),
    ("t.csv.gz", ZIPPED[:5], ("truncated gzip",)),
    ("t.csv.gz", ZIPPED[:-6] + b"zz" + ZIPPED[-4:], ("valid gzip", "fetch it again")),
    ("t.csv.gz", rows(GOOD), ("valid gzip", "drop .gz")),
    ("two\nlines {a}, 'b'.csv", rows("x\n"), ("two\\nlines {a}, 'b'.csv", "line 2")),
]


@pytest.mark.parametrize(("name", "content", "told"), BAD_TRACES, ids=[case[2][0] for case in BAD_TRACES])
def test_a_bad_trace(
    capsys: Captured, tmp_path: Path, name: str, content: bytes, told: tuple[str, ...]
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    sentence = refusal(capsys, tmp_path, "trace=azure_conv", f"trace.path={file}")
    for part in (str(file).replace("\n", "\\n"), *told):
        assert part in sentence


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/nosuch/t.csv", ("does not exist", "check the path")),
        ("/dev/zero", ("not a regular file",)),
        ("/dev", ("is a directory",)),
        ("~nosuchuserhere/t.csv", ("names an unknown home folder", "write the whole path")),
        ("https://example.org/t.csv", ("does not exist",)),
        ("n" * 5000, ("does not exist",)),
    ],
    ids=lambda value: str(value)[:12],
)
def test_a_trace_that_is_no_file(capsys: Captured, tmp_path: Path, path: str, told: tuple[str, ...]) -> None:
    sentence = refusal(capsys, tmp_path, "trace=azure_conv", f"trace.path={path}")
    assert all(part in sentence for part in told)
    assert len(sentence) < 1600


def test_a_trace_that_is_nowhere(capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERVETWIN_TRACES", str(tmp_path))
    sentence = refusal(capsys, tmp_path, "trace=azure_conv")
    assert "set SERVETWIN_TRACES" in sentence and "trace=azure_conv_like" in sentence
    monkeypatch.setenv("SERVETWIN_TRACES", "~nosuchuserhere")
    assert "SERVETWIN_TRACES=~nosuchuserhere names an unknown home" in refusal(
        capsys, tmp_path, "trace=azure_conv"
    )


# (words, what the sentence must hold)
BAD_WORDS: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("seed=twelve",), ("seed=twelve", "an integer", "seed=8")),
    (("seed=${model.tp}",), ("write the value itself",)),
    (("engine.kv_token=5",), ("engine.kv_token", "write engine.kv_tokens=")),
    (("JOURNAL=true",), ("write journal=",)),
    (("hydra.run.dir=/tmp",), ("out is given twice",)),
    (("hydra/launcher=joblib",), ("hydra/launcher", "write servetwin sweep")),
    (("+engine.x=1",), ("unknown key 'engine.x'", "write a key of engine")),
    (("--seed=1",), ("--seed 1 is a flag of vllm serve", "write seed=1")),
    (("-o", "x"), ("'-o'", "write key=value")),
    (("llama3_8b",), ("write model=llama3_8b",)),
    (("a100_x16",), ("write cluster=a100_x16",)),
    (("cluster=h900_x8",), ("cluster=h900_x8", "a100_xN")),
    (("cluster=a100_x8193",), ("N from 1 to 8192",)),
    (("model=../model/llama3_8b",), ("../model/llama3_8b", "config.json")),
    (("slo=nosuch",), ("write one of blitzscale_72b",)),
    (("system/dispatch=[a,b]",), ("write one of adaptive_pd, convertible, freeness, least_kv",)),
    (("engine={max_num_seqs: 5}",), ("is a mapping", "engine.max_num_seqs=5")),
    (("seed=[1]",), ("an integer",)),
    (("engine.step_time=a\nb",), ("a\\nb", "cannot be printed")),
    (("journal=\ud800",), ("cannot be printed",)),
    (("seed=1", "seed=2"), ("given twice", "write it once")),
    (("model=qwen2_5_72b", "model.tp=1"), ("qwen2_5_72b", "does not fit", "tp")),
    (("cluster=local",), ("llama3_8b", "does not fit")),
    (("engine.gpu_memory_utilization=0.15",), ("llama3_8b", "tp=2")),
    (("engine.kv_tokens=32",), ("no request of azure_conv_like fits", "write a larger engine.kv_tokens")),
    (("engine.max_num_seqs=512",), ("engine.max_num_seqs=512", "engine.step_time=roofline")),
    (("trace.tokens_scale=500", "engine.max_model_len=100000"), ("prompt", "trace.tokens_scale")),
    (("trace.tokens_scale=1e300",), ("trace.tokens_scale=1e+300", "write a smaller one")),
    (("trace.limit=1e18",), ("trace.limit=1000000000000000000", "from 1 to 200000000")),
    (("trace.rate_per_s=1e-300",), ("31 years", "write a larger trace.rate_per_s")),
    (("trace.utilization=1e-300",), ("31 years", "trace.utilization")),
    (("out=A", "out=B"), ("out is given twice",)),
    (("out= ",), ("out is missing",)),
    (("out= ", "model=qwen2_5_72b", "model.tp=1"), ("does not fit", "; and out is missing")),
    (("out=a\0b",), ("null character",)),
]


@pytest.mark.parametrize(("words", "told"), BAD_WORDS, ids=[" ".join(words)[:40] for words, _ in BAD_WORDS])
def test_bad_words(capsys: Captured, tmp_path: Path, words: tuple[str, ...], told: tuple[str, ...]) -> None:
    sentence = refusal(capsys, tmp_path, *DRAWN, *words)
    for part in told:
        assert part in sentence
    assert len(sentence) < 400


def test_too_many_requests_are_refused_before_memory_is_taken(capsys: Captured, tmp_path: Path) -> None:
    sentence = refusal(capsys, tmp_path, "trace=azure_conv_like", "trace.requests=200000001")
    assert "trace.requests=200000001 is out of range" in sentence


@pytest.mark.parametrize("value", ["abc", "nan", "true", "null", "[1]", "0", "-1", "1e-9"])
def test_a_policy_parameter_of_the_wrong_kind(capsys: Captured, tmp_path: Path, value: str) -> None:
    bucket = ("system/admission=token_bucket", f"system.admission.rate_per_s={value}")
    sentence = refusal(capsys, tmp_path, *DRAWN, *bucket)
    assert "rate_per_s" in sentence and "not supported between" not in sentence
    if not value.strip("-0123456789e"):
        assert "TokenBucket" in sentence
    else:
        assert "a finite one" in sentence or "wants a number" in sentence


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("file/run", "file is no folder"),
        ("file/a/b/run", "file is no folder"),
        ("file", "is a file"),
        ("n" * 300, "too long"),
        ("a/b/" + "n" * 300, "too long"),
        ("/dev/null", "is a file"),
        ("/dev/null/run", "/dev/null is no folder"),
        ("/proc/run", "/proc takes no such folder"),
        ("~nosuchuserhere/run", "not a usable path"),
        (".", "not a ServeTwin result"),
        ("loop/run", "loop"),
    ],
    ids=lambda value: str(value)[-12:],
)
def test_a_place_that_takes_no_results(capsys: Captured, tmp_path: Path, place: str, told: str) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    out = place if place[0] in "/~" else f"{tmp_path}/{place}"
    sentence = refusal(capsys, tmp_path, *DRAWN, f"out={out}")
    assert told in sentence
    assert "out=" in sentence and ("write out=" in sentence or "write another out=" in sentence)
    assert "unfinished" not in sentence, "the hidden folder is nobody's business"


def test_folders_made_on_the_way_are_removed_again(capsys: Captured, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("")
    words = ("trace=azure_conv", f"trace.path={bad}")
    refusal(capsys, tmp_path, *words, f"out={tmp_path}/a/b/c")
    (tmp_path / "a").mkdir()
    refusal(capsys, tmp_path, *words, f"out={tmp_path}/a/b/c")
    assert below(tmp_path) == {"a", "bad.csv"}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
def test_a_disk_that_is_full(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def full(path: Path, columns: object) -> None:
        path.write_bytes(b"half")
        raise OSError(code, "a long story", str(path))

    monkeypatch.setattr(results, "write_parquet", full)
    sentence = refusal(capsys, tmp_path, *DRAWN)
    assert os.strerror(code) in sentence and "out=" in sentence and "free space" in sentence


def test_a_folder_that_is_removed_during_the_run(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def removed(path: Path, columns: object) -> None:
        shutil.rmtree(tmp_path / "new")
        path.write_bytes(b"too late")

    monkeypatch.setattr(results, "write_parquet", removed)
    assert "removed during the run" in refusal(capsys, tmp_path, *DRAWN)


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (MemoryError(), 2, "write a smaller trace.limit"),
        (ModuleNotFoundError("No module named 'pyarrow'"), 2, "pyarrow"),
        (PermissionError(errno.EACCES, "no", "/etc/x"), 2, "Permission denied (/etc/x)"),
        (KeyError("lost"), 3, "KeyError: 'lost'"),
        (AssertionError("two\nlines"), 3, "two\\nlines"),
        (RecursionError("deep"), 3, "report it"),
    ],
    ids=str,
)
def test_what_nobody_expects(
    capsys: Captured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    status: int,
    told: str,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(simulation, "prepare", fail)
    assert told in refusal(capsys, tmp_path, *DRAWN, status=status)
    if status == 3:
        monkeypatch.setenv("SERVETWIN_TRACEBACK", "1")
        assert cli.run(["simulate", *DRAWN, f"out={tmp_path / 'run'}"]) == 3
        assert "Traceback" in capsys.readouterr().err


SERVETWIN = "from servetwin.cli.main import main; main()"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_a_signal_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with started(SERVETWIN, "simulate", *ENDLESS, "out=a/b/run", cwd=tmp_path) as running:
        begun = (tmp_path / "a" / "b").glob
        wait_until(lambda: [*begun(".servetwin-unfinished-*/journal")], "the run did not begin")
        running.send_signal(number)
        out, err = running.communicate(timeout=patience_s())
    assert (running.returncode, out, err) == (128 + number, "", "servetwin: stopped; nothing was written\n")
    assert below(tmp_path) == set()


def finished(folder: Path, *words: str, **options: object) -> str:
    """The sentence with which a process of its own ends, with status 2."""
    with started(SERVETWIN, *words, cwd=folder, **options) as running:
        _, err = running.communicate(timeout=patience_s())
    assert running.returncode == 2
    return sentence_of(err)


def test_a_limit_on_file_sizes(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    sentence = finished(tmp_path, "simulate", *DRAWN, "journal=true", "out=run", preexec_fn=limit)
    assert os.strerror(errno.EFBIG) in sentence
    assert below(tmp_path) == set()


def test_a_small_disk(tmp_path: Path) -> None:
    """A file system of its own, really full; only root may mount one."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a file system")
    try:
        words = ("simulate", *DRAWN[:1], "trace.requests=3000", "journal=true", "out=a/run")
        sentence = finished(ROOT, *words[:-1], f"out={tmp_path}/a/run")
        assert os.strerror(errno.ENOSPC) in sentence and "free space" in sentence
        assert below(tmp_path) == set()
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_standard_output_on_a_full_disk(tmp_path: Path) -> None:
    """The results were paid for, so they stay, and the sentence says where."""
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    with full.open("w") as stdout:
        sentence = finished(tmp_path, "simulate", *DRAWN, "out=run", stdout=stdout)
        assert "the results are in" in sentence
        assert (tmp_path / "run" / "summary.json").is_file()
        assert "could not be written" in finished(tmp_path, "--help", stdout=stdout)


def test_the_current_folder_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()

    def leave() -> None:
        os.chdir(gone)
        gone.rmdir()

    words = ("simulate", *DRAWN, f"out={tmp_path / 'run'}")
    assert "cd to one that exists" in finished(tmp_path, *words, preexec_fn=leave)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("result") / "run"
    assert cli.run(["simulate", *DRAWN, "journal=true", f"out={folder}"]) == 0
    return folder


def copy_of(result: Path, folder: Path, journal: bytes | None, config: bytes | None) -> None:
    for name, content in (("journal", journal), ("config.yaml", config)):
        if content is not None:
            (folder / name).write_bytes(content or (result / name).read_bytes())


@pytest.mark.parametrize(
    ("journal", "config", "told"),
    [
        (None, b"", "has no journal: run again with journal=true"),
        (b"", None, "has no config.yaml"),
        (b"\n", b"", "first line is not a ServeTwin journal header"),
        (b"\xff\xfe\n", b"", "is not text"),
        (b"[" * 100_000, b"", "first line is not a ServeTwin journal header"),
        (b"", b"\xff", "cannot be read"),
        (b"", b"[" * 100_000, "cannot be read"),
        (b"", b"a: [", "is not YAML"),
        (b"", b"!!python/object/apply:os.abort []", "is not YAML"),
        (b"", b"- 1", "is not a mapping"),
        (b"", b"seed: 0", "is missing"),
    ],
)
def test_what_cannot_be_replayed(
    capsys: Captured, tmp_path: Path, result: Path, journal: bytes | None, config: bytes | None, told: str
) -> None:
    copy_of(result, tmp_path, journal, config)
    assert cli.run(["replay", str(tmp_path)]) == 2
    sentence = sentence_of(capsys.readouterr().err)
    assert told in sentence and str(tmp_path) in sentence


def test_a_cut_or_altered_journal(capsys: Captured, tmp_path: Path, result: Path) -> None:
    lines = (result / "journal").read_bytes().splitlines(keepends=True)
    for cut in (lines[:-1], [*lines[:5], lines[5][:9]]):  # compared as far as it goes
        copy_of(result, tmp_path, b"".join(cut), b"")
        assert cli.run(["replay", str(tmp_path)]) == 1
        assert "0 differ" in capsys.readouterr().out
    for bad in ([*lines, b"[]\n"], [*lines[:4], b"null\n", *lines[4:]]):
        copy_of(result, tmp_path, b"".join(bad), b"")
        assert cli.run(["replay", str(tmp_path)]) == 2
        assert "journal" in sentence_of(capsys.readouterr().err)
    other = lines[1].replace(b'["assign",0,0,', b'["assign",0,1,')
    assert other != lines[1]
    for bad in ([*lines[:5], *lines[6:]], [lines[0], other, *lines[2:]]):
        copy_of(result, tmp_path, b"".join(bad), b"")
        assert cli.run(["replay", str(tmp_path)]) == 1
        assert "first difference: line " in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [(), ("a", "b"), ("nosuch",), ("~nosuchuserhere",), ("n" * 300,), ("a\0b",)]
)
def test_replay_of_what_is_no_folder(capsys: Captured, words: tuple[str, ...]) -> None:
    assert cli.run(["replay", *words]) == 2
    assert "write servetwin replay DIR" in sentence_of(capsys.readouterr().err)


@pytest.mark.parametrize("word", ["frobnicate", "", "si\nmulate", "simulate=1", "-x", "\udcff"])
def test_an_unknown_command(capsys: Captured, word: str) -> None:
    assert cli.run([word]) == 2
    assert "write servetwin simulate | plan" in sentence_of(capsys.readouterr().err)


def test_what_a_preempted_request_would_compute_again_is_within_the_step_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prompt and generated tokens are one prompt after a preemption: refused before the run, not in it."""
    path = tmp_path / "trace.csv"
    rows = "".join(f"2023-11-16 18:15:4{second}.0000000,15900,1500\n" for second in range(4))
    path.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")
    memory = ("engine.kv_tokens=50000", "engine.max_model_len=32768")
    words = [f"trace.path={path}", "cluster=a100_x1", *memory, f"out={tmp_path / 'out'}"]
    assert cli.run(["simulate", *words]) == 2
    err = capsys.readouterr().err
    assert "15900" in err and "17399" in err and "trace.tokens_scale" in err
    assert not (tmp_path / "out").exists()
    assert cli.run(["simulate", *words, "trace.tokens_scale=0.9"]) == 0
