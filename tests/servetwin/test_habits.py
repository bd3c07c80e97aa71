"""What every command does alike: flags, the doctor, completion."""

import json
import subprocess
from pathlib import Path

import pytest

from servetwin.cli import doctor
from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from servetwin.cli.completion import known_words
from servetwin.cli.flags import without_flags
from servetwin.sweeps.outcome import PointOutcome
from servetwin.sweeps.points import Point
from servetwin.sweeps.sweep_folder import SweepFolder
from traces.find import FILE_NAMES

ROOT = Path(__file__).resolve().parents[2]
TINY = ["simulate", "trace=azure_conv_like", "trace.requests=20", "cluster=a100_x2", "uncertainty=off"]


def test_json_is_the_summary_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*TINY, "journal=true", "--json", f"out={tmp_path / 'r'}"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "r" / "summary.json").read_text())
    assert cli.run(["replay", str(tmp_path / "r"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["different"] == 0


def test_quiet_prints_errors_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*TINY, "-q", f"out={tmp_path / 'r'}"]) == 0
    assert capsys.readouterr().out == ""
    assert cli.run([*TINY, "-q", "seed=x", f"out={tmp_path / 'q'}"]) == 2
    assert "seed=x is wrong" in capsys.readouterr().err


def test_verbose_shows_where_a_policy_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SERVETWIN_TRACEBACK", "")  # put back afterwards
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_broken.py").write_text(
        "class Mine:\n    def dispatch(self, request, fleet):\n        return 1 // 0, 'never'\n"
    )
    words = [*TINY, "system/dispatch=my_broken:Mine", "out=r"]
    assert cli.run([*words, "-v"]) == 2
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "ZeroDivisionError" in shown


def test_flags_are_taken_from_among_the_words() -> None:
    assert without_flags(["gpu=a100", "--json", "-q"]) == (["gpu=a100", "json=true"], True)
    assert without_flags(["gpu=a100"]) == (["gpu=a100"], False)


def test_the_doctor_tells_what_is_missing_and_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SERVETWIN_TRACES", raising=False)
    monkeypatch.delenv("SERVETWIN_PROFILES", raising=False)
    assert cli.run(["doctor", "all=true"]) == 0
    assert "servetwin traces fetch azure_conv" in capsys.readouterr().out
    assert cli.run(["doctor"]) == 0
    short = capsys.readouterr().out
    assert len(short.splitlines()) < 20 and "recorded traces: 0 of 19 are here" in short
    assert cli.run(["doctor", "everything"]) == 2
    assert "write all=true for everything" in capsys.readouterr().err
    known = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in ("simpy", "ray") else known(name))
    assert cli.run(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "pip install 'servetwin[ray]'" in shown
    assert "simpy: pip install servetwin" in shown
    assert cli.run(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["missing"] == ["simpy: pip install servetwin"]


def test_extras_of_the_doctor_are_those_of_the_package() -> None:
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for package, (_, extra) in doctor._EXTRAS.items():
        assert any(one.startswith(package) for one in extras[extra])
    assert {extra for _, extra in doctor._EXTRAS.values()} == set(extras)


def test_the_doctor_lists_every_recorded_trace_and_the_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    assert cli.run(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["traces"]) == set(FILE_NAMES)
    assert found["programs"] == dict.fromkeys(("cc", *doctor.BROWSERS))
    assert cli.run(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "install a C compiler" in shown
    assert "install chromium" in shown


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("servetwin pl", "plan plot"),
        ("servetwin simulate system=vllm_f", "vllm_full"),
        ("servetwin plan slo.ttft_p9", "slo.ttft_p90_ms= slo.ttft_p95_ms= slo.ttft_p99_ms="),
        ("servetwin sweep search.tr", "search.trials="),
        ("servetwin simulate cluster=p5_", "p5_48xlarge"),
        ("servetwin story DIR inst", "instance="),
        ("servetwin simulate trace.rate_per", "trace.rate_per_s="),
        ("servetwin simulate trace.reque", "trace.requests="),
        ("servetwin simulate conf", "config="),
        ("servetwin plan price.h1", "price.h100="),
        ("servetwin plan slo.itl_p9", "slo.itl_p90_ms= slo.itl_p95_ms= slo.itl_p99_ms="),
        ("servetwin plan slo.goodp", "slo.goodput_req_per_s="),
        ("realexec prob", "probe"),
        ("realexec run laun", "launcher="),
        ("realexec run repe", "repeat="),
    ],
)
def test_a_shell_completes_commands_and_options(
    line: str, wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = line.partition(" ")[0]
    assert (cli if name == "servetwin" else realexec_cli).run(["completion", "bash"]) == 0
    script = tmp_path / "completion.sh"
    word = f"COMP_LINE='{line}'; COMP_POINT={len(line)}; COMP_CWORD={line.count(' ')}"
    script.write_text(f'{capsys.readouterr().out}\n{word}\n_{name}\necho "${{COMPREPLY[@]}}"\n')
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == wanted.split(), done.stderr


def test_completion_knows_every_group_and_key() -> None:
    found = known_words()
    assert {"system=blitzscale", "trace=azure_conv", "seed=", "engine.max_num_seqs="} <= set(found)
    assert cli.run(["completion", "tcsh"]) == 2


@pytest.mark.parametrize(("file", "told"), [("points.jsonl", "is a sweep's"), ("plan.json", "is a plan's")])
def test_a_folder_of_another_command_is_told_by_its_kind(
    file: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / file).write_text("", encoding="utf-8")
    commands = (["replay"], ["timeline"], ["story", "request=1"], ["compare", str(tmp_path)])
    for command, *more in commands:
        assert cli.run([command, str(tmp_path), *more]) == 2
        assert told in capsys.readouterr().err, command
    assert cli.run(["simulate", f"config={tmp_path}", f"out={tmp_path / 'new'}"]) == 2
    assert told in capsys.readouterr().err


def test_a_sweep_that_is_stopped_says_what_it_keeps(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt) as stopped, SweepFolder(tmp_path) as folder:
        folder.keep(Point(0, ("seed=0",), (("seed", "0"),)), PointOutcome({}, "", 0.0))
        raise KeyboardInterrupt
    assert stopped.value.__notes__ == [
        f"{tmp_path} keeps 1 finished point, from which the same command goes on"
    ]


def test_programs_can_read_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["support", "model=llama3_8b", "gpu=a100_80g", "tp=1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["tp"]) == ("llama3_8b", 1) and found["kv_tokens"] > 100_000
    assert {"step times", "kv memory", "start"} <= set(found["sections"])
    assert cli.run(["traces", "list", "--json"]) == 0
    names = {one["name"]: one["kind"] for one in json.loads(capsys.readouterr().out)}
    assert names["azure_conv"] == "recorded" and names["poisson"] == "drawn"
    assert cli.run(["traces", "describe", "poisson", "requests=100", "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out), dict)
