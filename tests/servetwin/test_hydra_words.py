"""What users of Hydra type works, or is answered by a sentence that names the word which does it here."""

import json
import os
from argparse import SUPPRESS
from pathlib import Path

import pytest
import yaml
from hydra._internal.utils import get_args_parser

from servetwin.cli import main as servetwin_cli
from servetwin.cli import realexec as realexec_cli
from servetwin.cli.hydra_words import COMPOSING, FLAGS, Translated, in_own_words
from servetwin.config.compose.compose import load_config
from servetwin.config.options import FOLDERS_VARIABLE, option_groups
from servetwin.config.overrides import Wanted, parse_value, parse_words
from servetwin.sweeps.axes import axes_of
from serving.vocabulary.errors import UserError
from tests.worlds.refusals import refuses

TINY = ["trace=azure_conv_like", "trace.requests=8", "cluster=a100_x2", "uncertainty=off"]
ACTIONS = [action for action in get_args_parser()._actions if action.option_strings]
KEYED = [("servetwin", command) for command in ("simulate", "sweep", "plan", "compare", "support", "story")]
KEYED += [("realexec", command) for command in ("run", "observe", "calibrate", "fidelity")]
LAB = "name: lab\ngpu: h100\ngpus: 4\n"


@pytest.fixture(autouse=True)
def _no_folders_of_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDERS_VARIABLE, "")  # put back afterwards, whatever a command adds


def run(name: str, *words: str) -> int:
    return (servetwin_cli if name == "servetwin" else realexec_cli).run(list(words))


def translated(command: str, *words: str) -> Translated:
    return in_own_words("servetwin" if command in servetwin_cli.COMMANDS else "realexec", command, words)


def test_the_flags_are_those_of_the_installed_hydra() -> None:
    theirs = {next(flag for flag in one.option_strings if flag.startswith("--")): one for one in ACTIONS}
    assert theirs.keys() == FLAGS.keys()
    for flag, action in theirs.items():
        short = next((one for one in action.option_strings if not one.startswith("--")), "")
        count = "0" if action.nargs == 0 else "?" if action.nargs == "?" else "1"
        assert FLAGS[flag] == (short, count), flag


@pytest.mark.parametrize(("name", "command"), KEYED)
@pytest.mark.parametrize("flag", [flag for one in ACTIONS for flag in one.option_strings])
def test_every_flag_of_hydra_works_or_is_answered(
    flag: str, name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A flag that hydra's own parser knows and that is not answered fails here."""
    action = next(one for one in ACTIONS if flag in one.option_strings)
    assert action.help not in (None, SUPPRESS)
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "lab.yaml").write_text(LAB)
    values = {"config_dir": [str(tmp_path)], "cfg": ["job"], "shell_completion": ["install=bash"]}
    value = values.get(action.dest, ["engine"] if action.nargs is None else [])
    few = ["cluster=blitz_a_1x1"] if command == "support" else []
    status = run(name, command, flag, *value, *few)
    out, error = capsys.readouterr()
    if status == 0:
        assert out
        return
    assert status == 2
    assert "fault" not in error and f"'{flag}' has no '='" not in error and "is no flag" not in error
    (sentence,) = [line for line in error.splitlines() if line.startswith(f"{name}: ")] or [out]
    words = (*servetwin_cli.COMMANDS, *realexec_cli.COMMANDS, "config=", "--cfg job", "out=", "KEY=", "DIR")
    assert any(word in sentence for word in words), sentence


@pytest.mark.parametrize("flag", ["--version", "--hydra-help", "-h"])
def test_flags_that_only_print(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("servetwin", "simulate", flag) == 0
    inside = capsys.readouterr().out
    assert run("servetwin", flag) == 0
    outside = capsys.readouterr().out
    assert outside.strip() and (flag == "-h" or inside == outside)


def test_multirun_is_the_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*TINY, "seed=0,1", "processes=1"]
    assert run("servetwin", "simulate", "-m", *words, f"hydra.sweep.dir={tmp_path / 'a'}") == 0
    assert run("servetwin", "sweep", *words, f"out={tmp_path / 'b'}") == 0
    first, second = ((tmp_path / name / "sweep.parquet").read_bytes() for name in ("a", "b"))
    assert first == second
    for written in (["-m"], ["--multirun"], ["hydra.mode=MULTIRUN"]):
        assert translated("simulate", *written, "seed=0,1").command == "sweep"
    assert translated("plan", "-m", "slo.ttft_p99_ms=500").command == "plan"
    capsys.readouterr()


@pytest.mark.parametrize(
    ("name", "command", "more"),
    [
        ("servetwin", "simulate", ["engine.max_num_seqs=7", "system=vllm_full", "cluster=blitz_b"]),
        ("realexec", "run", ["workers=3", "trace.limit=4"]),
    ],
)
def test_cfg_job_is_the_configuration_of_the_run(
    name: str, command: str, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from servetwin.config.compose.resolved import resolved_yaml

    config = load_config([*more, "out=there"], COMPOSING[command])
    assert run(name, command, "--cfg", "job", *more, "out=there") == 0
    text = capsys.readouterr().out
    assert text == resolved_yaml(config) and not Path("there").exists()
    for written in (["--cfg=all"], ["-c", "job", "--resolve"]):
        assert run(name, command, *written, *more, "out=there") == 0
        assert capsys.readouterr().out == text
    assert run(name, command, "-c", "job", "-p", "system.dispatch", *more) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("# @package system.dispatch\n")
    assert yaml.safe_load(shown) == yaml.safe_load(text)["system"]["dispatch"]
    assert run(name, command, "-c", "job", *more, "--json") == 0
    assert json.loads(capsys.readouterr().out) == yaml.safe_load(text) | {"out": "???"}


def test_cfg_job_is_what_a_run_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*TINY, "seed=3", f"hydra.run.dir={tmp_path / 'r'}"]
    assert run("servetwin", "simulate", *words) == 0
    capsys.readouterr()
    assert run("servetwin", "simulate", *words, "--cfg", "job") == 0
    assert capsys.readouterr().out == (tmp_path / "r" / "config.yaml").read_text()


def test_info_names_options_with_their_files_and_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "lab.yaml").write_text(LAB)
    words = ["simulate", "-i", "-cd", str(tmp_path), "cluster=lab", "system=vllm_full"]
    assert run("servetwin", *words, "cluster.gpu=h100") == 2, "what a run refuses is refused"
    capsys.readouterr()
    assert run("servetwin", *words[:5], "--json") == 0
    about = json.loads(capsys.readouterr().out)
    assert about["defaults"]["cluster=lab"] == str(tmp_path / "cluster" / "lab.yaml")
    chosen = {word.partition("=")[0] for word in about["defaults"]} - {"simulate"}
    assert chosen == set(option_groups())
    assert str(tmp_path) in about["searchpath"] and "slurm" in about["plugins"]
    for what, heading in (("defaults-tree", "Options"), ("searchpath", "Folders"), ("plugins", "Launchers")):
        assert run("servetwin", "simulate", "--info", what, "cluster=lab") == 0
        assert capsys.readouterr().out.startswith(heading)
    assert run("servetwin", "simulate", "--info", "config", "out=o") == 0
    info = capsys.readouterr().out
    assert run("servetwin", "simulate", "--cfg", "job", "out=o") == 0
    assert capsys.readouterr().out == info


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (["+seed=4"], ["seed=4"]),
        (["++engine.max_num_seqs=4"], ["engine.max_num_seqs=4"]),
        (["+faults=one_host"], ["faults=one_host"]),
        (["~faults"], ["faults=none"]),
        (["~system/scaler"], ["system/scaler=none"]),
        (["~models"], ["models=one"]),
        (["~series.period_s"], ["series.period_s=null"]),
        (["~faults=none"], ["faults=none"]),
        (["trace.limit=5", "~trace.limit=5"], ["trace.limit=5", "trace.limit=null"]),
        (["engine@engine=vllm_v0"], ["engine=vllm_v0"]),
        (["+system/dispatch@system.dispatch=least_kv"], ["system/dispatch=least_kv"]),
        (["hydra.run.dir=here"], ["out=here"]),
        (["hydra.verbose=true", "hydra.job.chdir=false", "hydra.mode=RUN"], ["-v"]),
        (["-r", "seed=1"], ["seed=1"]),
    ],
)
def test_words_of_a_run(written: list[str], meant: list[str]) -> None:
    assert translated("simulate", *written).words == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (["hydra/launcher=basic"], ["processes=1"]),
        (["hydra/launcher=joblib", "hydra.launcher.n_jobs=3"], ["launcher=local", "processes=3"]),
        (["hydra.launcher.n_jobs=-1"], [f"processes={os.cpu_count()}"]),
        (["hydra/launcher=submitit_local"], ["launcher=slurm", "slurm.cluster=local"]),
        (["hydra/launcher=submitit_slurm", "hydra.launcher.partition=p",
          "hydra.launcher.array_parallelism=4"],
         ["launcher=slurm", "slurm.partition=p", "slurm.jobs=4"]),
        (["hydra/launcher=ray"], ["launcher=ray"]),
        (["hydra/sweeper=basic", "+hydra.sweeper.params.seed=1,2"], ["seed=1,2"]),
        (["hydra/sweeper=optuna", "hydra.sweeper.n_trials=9", "search.minimize=ttft_ms.p99"],
         ["search.trials=9", "search.minimize=ttft_ms.p99"]),
        (["~faults", "seed=range(0,3)"], ["faults=none", "seed=range(0,3)"]),
    ],
)  # fmt: skip
def test_words_of_a_sweep(written: list[str], meant: list[str]) -> None:
    assert translated("sweep", *written).words == meant
    assert translated("simulate", "-m", *written).words == meant


REFUSED: list[tuple[str, list[str], str]] = [
    ("simulate", ["~seed"], "'~seed' would leave a run without seed: write seed=VALUE"),
    ("simulate", ["~engine"], "without engine: write engine=OPTION, one of blitz_native"),
    ("simulate", ["~engine.max_num_seq"], "write engine.max_num_seqs=VALUE if that is meant"),
    ("simulate", ["~faults=one_host"], "since faults is none here: write ~faults"),
    ("sweep", ["~faults=one_host"], "of single runs: write ~faults"),
    ("simulate", ["engine@other=vllm_v0"], "options of engine have one place: write engine=vllm_v0"),
    ("simulate", ["hydra/launcher=joblib"], "write servetwin sweep, or add -m"),
    ("run", ["hydra/launcher=joblib"], "write servetwin sweep, or add workers=N"),
    ("simulate", ["hydra.sweep.dir=x"], "of sweeps: write servetwin sweep"),
    ("sweep", ["hydra.run.dir=x"], "write out=FOLDER"),
    ("simulate", ["hydra.run.dir=${now:%H}"], "write out=FOLDER"),
    ("sweep", ["hydra/launcher=rq"], "write processes=N, launcher=local"),
    ("sweep", ["hydra/sweeper=optuna"], "write search.minimize=ttft_ms.p99"),
    (
        "sweep",
        ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=3"],
        "(or search.maximize=METRIC) search.trials=3",
    ),
    ("sweep", ["hydra/sweeper=ax"], "write search.minimize=ttft_ms.p99"),
    ("sweep", ["hydra.sweeper.direction=minimize"], "write search.minimize"),
    ("sweep", ["hydra.sweep.subdir=x"], "write folders=true"),
    ("simulate", ["hydra.job.name=x"], "write out=FOLDER"),
    ("simulate", ["hydra.job.env_set.X=1"], "NAME=VALUE servetwin"),
    ("simulate", ["hydra.job.chdir=true"], "write out=FOLDER"),
    ("simulate", ["hydra/job_logging=disabled"], "write -q"),
    ("simulate", ["hydra.searchpath=[x]"], "write --config-dir DIR"),
    ("simulate", ["hydra.callbacks.mine=x"], "write servetwin --hydra-help"),
    ("simulate", ["~hydra.callbacks"], "write servetwin --hydra-help"),
    ("compare", ["hydra.run.dir=x"], "write servetwin sweep"),
    ("simulate", ["--cfg"], "--cfg has no value: write --cfg VALUE"),
    ("simulate", ["--cfg", "jobs"], "write --cfg job"),
    ("simulate", ["--cfg", "hydra"], "write --cfg job"),
    ("simulate", ["-m", "--cfg", "job"], "leave -m out"),
    ("simulate", ["-m", "--run"], "write one of the two"),
    ("simulate", ["--info=x"], "write one of all, config"),
    ("simulate", ["--resolve"], "write servetwin simulate --cfg job"),
    ("simulate", ["--config-dir", "nowhere"], "is no folder: write one"),
    ("simulate", ["-sc", "uninstall=bash"], "complete -r servetwin"),
    ("run", ["-m", "seed=1,2"], "write repeat=N"),
]


@pytest.mark.parametrize(("command", "words", "told"), REFUSED)
def test_what_has_no_meaning_names_the_word_that_has(command: str, words: list[str], told: str) -> None:
    with pytest.raises(UserError) as refused:
        translated(command, *words)
    assert told in str(refused.value)


def test_a_part_that_is_not_there_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("servetwin", "simulate", "--cfg", "job", "-p", "system.dispach") == 2
    assert "write dispatch" in capsys.readouterr().err


def test_places_of_other_commands_stay_places(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("servetwin", "compare", "~nosuchuserhere/run", "b") == 2
    assert "home" in capsys.readouterr().err


def folder_of(tmp_path: Path, **files: str) -> Path:
    folder = tmp_path / "mine, 'quoted' here"
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_option_files_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(
        tmp_path,
        cluster__lab=LAB,
        engine__small="defaults:\n  - vllm_v0\nname: small\nmax_num_seqs: 3\n",
    )
    words = [*TINY[:2], "cluster=lab", "engine=small", "-cd", str(folder), f"out={tmp_path / 'r'}"]
    assert run("servetwin", "simulate", *words) == 0
    data = yaml.safe_load((tmp_path / "r" / "config.yaml").read_text())
    assert (data["cluster"]["name"], data["cluster"]["gpu"]) == ("lab", "h100")
    assert (data["engine"]["max_num_seqs"], data["engine"]["version"]) == (3, "0.6.0")
    swept = [*TINY[:2], "cluster=a100_x2,lab", "processes=2", f"out={tmp_path / 's'}"]
    assert run("servetwin", "sweep", *swept) == 0, "the variable reaches the processes of a sweep"
    first = (tmp_path / "s" / "points.jsonl").read_text().splitlines()
    assert len(first) == 2 and '"refused": ""' in first[1].replace('"refused":""', '"refused": ""')
    (folder / "cluster" / "lab.yaml").write_text(LAB.replace("4", "2"))
    assert run("servetwin", "sweep", *swept) == 0
    assert len((tmp_path / "s" / "points.jsonl").read_text().splitlines()) == 4, "another file is another run"
    capsys.readouterr()


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("trace__mine", "write trace=file trace.path=FILE"),
        ("engines__mine", "write it into one of cluster, engine"),
        ("engine__vllm_v1", "has the name of another engine=vllm_v1: write another name"),
        ("", "has no option files: write files such as"),
    ],
)
def test_option_files_that_cannot_be_used(
    file: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path, **({file: "name: mine\n"} if file else {}))
    monkeypatch.setenv(FOLDERS_VARIABLE, str(folder))
    refuses(UserError, told, option_groups)


def test_texts_of_hydras_grammar() -> None:
    words = ["system=blitzscale", "cluster=blitz_b", "system.scaler.ways=['cancel_drain', revive]", "out=o"]
    assert load_config(words, "simulate").system.scaler.params["ways"] == ["cancel_drain", "revive"]
    assert load_config(["engine='vllm_v0'", "out=o"], "simulate").engine.name == "vllm_v0"
    assert parse_value(parse_words(["key=['a,b', c\\,d, 'it\\'s']"])[0], Wanted(list, items=str)) == [
        "a,b", "c,d", "it's",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["'a,b'", '"a,b"', "a\\,b"])
def test_a_text_may_have_a_comma(text: str) -> None:
    words = ["world=http", "http.servers=[http://127.0.0.1:1]", "workers=1", f"http.model={text}", "out=o"]
    assert load_config(words, "realexec").http.model == "a,b"
    (axis,) = axes_of([f"http.model={text},c"])[1]
    again = [load_config([*words[:3], f"http.model={one}", "out=o"], "realexec") for one in axis.texts]
    assert [config.http.model for config in again] == ["a,b", "c"]


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("engine={max_num_seqs: 5}", "such as engine.max_num_seqs=5"),
        ("seed=int(3)", "write seed=3"),
        ("seed='1','2'", "write servetwin sweep"),
        ("seed=int(range(1,5))", "write servetwin sweep"),
    ],
)
def test_values_of_hydras_grammar_that_are_refused(word: str, told: str) -> None:
    with pytest.raises(UserError) as refused:
        load_config([word, "out=o"], "simulate")
    assert told in str(refused.value)
    refuses(UserError, "is a mapping: write values of single keys", axes_of, ["engine={a:1},{a:2}"])


def test_a_removed_value_goes_with_flags(tmp_path: Path) -> None:
    words = ["trace=azure_conv_like", "trace.requests=5", "cluster=a100_x2", f"out={tmp_path / 'run'}"]
    assert servetwin_cli.run(["simulate", "~system/scaler=none", *words, "-q"]) == 0
