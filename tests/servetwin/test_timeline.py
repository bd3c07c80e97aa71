"""A journal as a timeline: every run, load and transfer is a slice, and those of a track do not overlap."""

import gzip
import json
import shutil
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from servetwin.cli import main as cli
from servetwin.report.timeline import DECISIONS, INSTANCES, LOADS, TRANSFERS

WORDS = ("trace=azure_code_like", "trace.requests=120", "trace.rate_per_s=12", "cluster=blitz_b")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("t") / "run"
    words = ["simulate", "system=blitzscale", *WORDS, "journal=true", "uncertainty=off", f"out={out}"]
    assert cli.run(words) == 0
    return out


@pytest.fixture(scope="module")
def slices(run: Path, tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    out = tmp_path_factory.mktemp("t") / "timeline.json.gz"
    assert cli.run(["timeline", str(run), f"out={out}"]) == 0
    with gzip.open(out) as file:
        return json.load(file)["traceEvents"]


def journal_of(run: Path) -> Counter[str]:
    lines = [json.loads(line) for line in (run / "journal").read_text().splitlines()]
    rows = [line for line in lines if isinstance(line, list)]
    return Counter(line[1][0] for line in rows) + Counter(action[0] for line in rows for action in line[2])


def test_every_load_and_transfer_is_a_slice(run: Path, slices) -> None:  # type: ignore[no-untyped-def]
    counted = journal_of(run)
    found = Counter(one["pid"] for one in slices if one["ph"] == "X")
    assert found[TRANSFERS] == counted["sent"] > 0
    assert found[LOADS] > 0
    assert found[INSTANCES] > 100


def test_slices_of_an_instance_do_not_overlap(slices) -> None:  # type: ignore[no-untyped-def]
    tracks: dict[int, list[tuple[float, float]]] = {}
    for one in slices:
        if one["ph"] == "X" and one["pid"] == INSTANCES:
            tracks.setdefault(one["tid"], []).append((one["ts"], one["ts"] + one["dur"]))
    assert len(tracks) > 1
    for track in tracks.values():
        assert all(first[1] <= second[0] + 1e-6 for first, second in pairwise(sorted(track)))


def test_decisions_have_their_reasons_and_tracks_their_names(slices) -> None:  # type: ignore[no-untyped-def]
    decided = [one for one in slices if one["pid"] == DECISIONS and one["ph"] == "i"]
    assert any(one["name"].startswith("AllocateGpus") and one["args"]["reason"] for one in decided)
    named = {(one["pid"], one.get("tid")) for one in slices if one["ph"] == "M"}
    assert {(one["pid"], one["tid"]) for one in slices if one["ph"] != "M"} <= named


def test_a_static_run_shows_who_got_each_request(tmp_path: Path) -> None:
    words = ["trace=azure_conv_like", "trace.requests=12", "cluster=a100_x2", "uncertainty=off"]
    assert cli.run(["simulate", *words, "journal=true", f"out={tmp_path / 'run'}"]) == 0
    out = tmp_path / "t.json.gz"
    assert cli.run(["timeline", str(tmp_path / "run"), f"out={out}"]) == 0
    with gzip.open(out) as file:
        found = json.load(file)["traceEvents"]
    assigned = [one["name"] for one in found if one["pid"] == DECISIONS and one["name"].startswith("Assign")]
    assert len(assigned) == 12 and any(name.startswith("Assign request 3, replica ") for name in assigned)
    prompts = {request for one in found for request in one.get("args", {}).get("prompts_of", ())}
    assert prompts == set(range(12))


def test_what_cannot_be_shown_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["timeline", str(tmp_path)]) == 2
    assert cli.run(["timeline", str(tmp_path), "pretty=true"]) == 2
    assert "one word too many" in capsys.readouterr().err


def test_a_file_is_written_whole_and_replaced_only_on_request(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "t.json.gz"
    out.write_text("mine")
    assert cli.run(["timeline", str(run), f"out={out}"]) == 2
    assert "overwrite=true" in capsys.readouterr().err and out.read_text() == "mine"

    def full(self: Path, data: bytes) -> int:
        self.touch()
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        assert cli.run(["timeline", str(run), f"out={out}", "overwrite=true"]) == 2
    assert "No space left" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [out.name] and out.read_text() == "mine"
    assert cli.run(["timeline", str(run), f"out={out}", "overwrite=true"]) == 0
    first = out.read_bytes()
    assert cli.run(["timeline", str(run), f"out={out}", "overwrite=true"]) == 0
    assert out.read_bytes() == first and first != b"mine"


DEEP = "[" * 100_000 + "]" * 100_000


LINES = {
    "no header, nested": [DEEP],
    "nested": ["HEAD", DEEP],
    "short": ["HEAD", "[1]"],
    "no event": ["HEAD", '[0,["arrived"],[]]'],
    "nested action": ["HEAD", '[0,["woke"],[["assign",' + "[" * 900 + "]" * 900 + "]]]"],
    "no text": ["HEAD", "\xff"],
    "no header": ['{"servetwin_journal":null}'],
}
FOUND = {
    "timeline": set(LINES),
    "story": set(LINES),
    "replay": set(LINES) - {"no event", "nested action"},  # there the answer is that they differ
    "compare": {"no header, nested", "nested", "short", "no text"},  # it reads up to the first difference
}


@pytest.mark.parametrize(
    ("command", "lines"), [(name, one) for name, found in FOUND.items() for one in sorted(found)]
)
def test_a_damaged_journal_is_refused_by_every_command(
    command: str, lines: str, run: Path, damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = (run / "journal").read_text().partition("\n")[0]
    text = "".join(line.replace("HEAD", head) + "\n" for line in LINES[lines])
    (damaged / "journal").write_bytes(text.encode("latin-1"))
    words = {"compare": [str(run), str(damaged)], "timeline": [str(damaged), f"out={damaged / 'out'}"]}
    assert cli.run([command, *words.get(command, [str(damaged)])]) == 2
    assert f"{damaged / 'journal'}" in capsys.readouterr().err
    assert not (damaged / "out").exists()


@pytest.fixture
def damaged(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "damaged"))
