"""A result folder is data: whatever its files name, nothing is imported or called that nobody else named."""

import ast
import json
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from experiments.blitzscale.more_set_ups import SIX_24B
from experiments.common.run_store import RunStore
from experiments.common.set_up import Case
from servetwin.cli import main as cli
from servetwin.config.compose.resolved import read_resolved
from servetwin.config.policy.groups import POLICY_GROUPS
from servetwin.config.policy.saved import check_policies
from servetwin.results.journal_file import NAME
from serving.record.journal import digest_of
from serving.vocabulary.errors import UserError
from tests.worlds.forgery import ATTACKS, EVIL, config_of, imported, places, put

__all__ = ["imported"]

WORDS = (
    "system=blitzscale", "system/admission=token_bucket", "system.admission.rate_per_s=9", "cluster=blitz_b",
    "trace=azure_conv_like", "trace.requests=4", "trace.rate_per_s=20", "journal=true",
)  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("saved") / "run"
    assert cli.run(["simulate", *WORDS, f"out={out}"]) == 0
    return out


def forged(run: Path, folder: Path, config: Any) -> Path:
    """The run with another config.yaml, and a journal whose hashes were mended to agree with it."""
    folder.mkdir(exist_ok=True)
    text = yaml.safe_dump(config, sort_keys=False)
    (folder / "config.yaml").write_text(text)
    lines = (run / NAME).read_text().splitlines()
    header = json.loads(lines[0]) | {"config_sha256": sha256(text.encode()).hexdigest()}
    lines[0] = json.dumps(header, sort_keys=True, separators=(",", ":"))
    footer = json.loads(lines[-1]) | {"sha256": digest_of(lines[:-1])}
    (folder / NAME).write_text("\n".join([*lines[:-1], json.dumps(footer)]) + "\n")
    return folder


def test_the_forged_run_of_nothing_new_replays(run: Path, tmp_path: Path) -> None:
    """Else the attacks below would be refused for their hashes."""
    folder = forged(run, tmp_path / "same", config_of(run))
    assert cli.run(["replay", str(folder)]) == 0
    again = put(config_of(run), ("out",), "elsewhere")
    assert cli.run(["replay", str(forged(run, tmp_path / "other", again))]) == 0


def test_no_place_of_a_configuration_names_code(
    run: Path, tmp_path: Path, imported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, folder = config_of(run), tmp_path / "forged"
    for number, place in enumerate(places(config)):
        with suppress(UserError):  # of another type than the key takes, and the journal is not even read
            forged(run, folder, put(config, place, ATTACKS[number % len(ATTACKS)]))
        capsys.readouterr()
        status, out = cli.run(["replay", str(folder)]), capsys.readouterr().out
        assert status == 2 or out.endswith(", 0 differ\n"), (place, status, out)
        assert not imported.exists() and EVIL not in sys.modules, place


NAMES = [
    "subprocess:getoutput",
    "subprocess:Popen",
    "os:system",
    "builtins:eval",
    "policies.scaling.load_monitor:SurplusArbiter",
    "policies.dispatch:PowerOfTwoChoices",
    "policies.live.zigzag_ilp:find_spec",
    "servetwin.cli.main:main",
    "servetwin.assemble.build:Random",
    "serving.vocabulary.fact:exec",
    "serving.engine.fleet:Fleet",
    "hwmodels.catalogue:files",
    "",
    ":",
    "???",
    "${oc.env:HOME}",
]


@pytest.mark.parametrize("group", POLICY_GROUPS)
def test_an_option_has_the_class_of_its_own_file(run: Path, group: str) -> None:
    """Other names of this package are refused too, under an option's name, their own, and an unknown one."""
    system = read_resolved(run / "config.yaml").system
    check_policies(system, {}, "FILE")
    had = getattr(system, group)
    for policy in NAMES:
        for name in {had.name, policy, "no_such_option"}:
            changed = replace(had, name=name, policy=policy)
            if changed != had:
                with pytest.raises(UserError, match=f"system/{group}="):
                    check_policies(replace(system, **{group: changed}), {}, "FILE")


def test_naming_it_makes_no_function_a_policy(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of(run)
    option = {"name": "subprocess:getoutput", "policy": "subprocess:getoutput", "params": {"cmd": "true"}}
    folder = str(forged(run, tmp_path / "run", put(config, ("system", "dispatch"), option)))
    assert cli.run(["replay", folder]) == 2
    assert "write system/dispatch=subprocess:getoutput behind it if" in capsys.readouterr().err
    assert cli.run(["replay", folder, "system/dispatch=subprocess:getoutput"]) == 2
    assert "has the function getoutput" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (
            "system/dispatch=my_policies:Mine",
            "is not what the run had: write system/dispatch=least_outstanding",
        ),
        ("system/dispatch=round_robin", "is not what the run had: write system/dispatch=least_outstanding"),
        ("system.dispatch.most=3", "cannot be changed by a replay"),
        ("seed=1", "cannot be changed by a replay"),
        ("system/nothing=x:Y", "cannot be changed by a replay"),
    ],
)
def test_a_replay_takes_nothing_that_the_run_had_not(
    run: Path, word: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["replay", str(run), word]) == 2
    assert said in capsys.readouterr().err
    assert cli.run(["replay", str(run), "system/dispatch=least_outstanding"]) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("!!python/object/apply:os.system ['true']\n", "is not YAML"),
        ("!!python/name:os.system\n", "is not YAML"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: *b\n", "refers to another part of itself"),
        ("[" * 2000, "cannot be read"),
        ("kind: simulate\n" + "x" * 100 + ": 1\n", "unknown key"),
    ],
)
def test_a_configuration_is_plain_yaml(
    run: Path, tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / NAME).write_text((run / NAME).read_text())
    (folder / "config.yaml").write_text(text)
    assert cli.run(["replay", str(folder)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"rate_per_s": "fast", "burst": 1}, "system.admission.rate_per_s='fast' is wrong"),
        ({"rate_per_s": 1.0, "burst": 1, "estimates": 3}, "'estimates', which it does not take"),
        ({"rate_per_s": 1.0, "burst": 1, "__class__": 3}, "'__class__', which it does not take"),
        ({"rate_per_s": 1.0}, "needs the parameter burst"),
        ({"rate_per_s": 1.0, "burst": [1]}, "system.admission.burst=[1] is wrong"),
    ],
)
def test_saved_parameters_are_held_against_the_constructor(
    run: Path, tmp_path: Path, params: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    option = {"name": "token_bucket", "policy": "policies.admission:TokenBucket", "params": params}
    folder = forged(run, tmp_path / "run", put(config_of(run), ("system", "admission"), option))
    assert cli.run(["replay", str(folder)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("place", [("slo", "tpot_ms"), ("seed",), ("system", "admission", "params", "burst")])
def test_numbers_that_no_float_comes_near_to_are_refused(run: Path, tmp_path: Path, place: Any) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(put(config_of(run), place, 10**400)))
    with pytest.raises(UserError, match=r"too many digits|no plain value"):
        read_resolved(file)


@dataclass(frozen=True)
class Told:
    """Unpickled, it makes a file."""

    path: Path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_kept_runs_of_a_reproduction_are_not_unpickled(tmp_path: Path) -> None:
    store, case = RunStore(tmp_path), Case("any", SIX_24B, ())
    hostile = np.array([Told(tmp_path / "called")], dtype=object)
    for broken in ({"text": hostile}, {"text": np.array('{"timelines": []}'), "arrival_s": hostile}):
        np.savez(store._path(case, 0), **broken)
        assert store.load(case, 0) is None and not (tmp_path / "called").exists()
    np.load(store._path(case, 0), allow_pickle=True)["arrival_s"]
    assert (tmp_path / "called").exists()  # what was there to be called


SHIPPED = (
    "serving",
    "policies",
    "hwmodels",
    "simcore",
    "realexec",
    "traces",
    "servetwin",
    "experiments",
    "notebooks",
)
# What a registry of the package names, a class held against its protocol, and texts of the package's own.
BY_NAME = {
    # The library's method that adds up a model's operations; no code of a file is run.
    "hwmodels/step_times/aiconfigurator_library.py": {"compile"},
    "traces/formats.py": {"import_module"},
    "traces/synthetic/registry.py": {"import_module"},
    "servetwin/config/policy/policy_class.py": {"import_module"},
    "servetwin/cli/process.py": {"import_module"},  # a table of commands
    "serving/vocabulary/fact.py": {"exec", "import_module"},
    "realexec/worker/worker_process.py": {"import_module"},  # what the driver says over a pipe it made
    "realexec/launchers/fork_server_process.py": {"import_module"},  # modules that the driver's code lists
    "realexec/verbs/package.py": {"import_module"},  # pyverbs, by names that stand there
    "hwmodels/yaml_text.py": {"yaml.load"},  # a safe loader
    "traces/fetching/sources.py": {"yaml.load"},  # a safe loader
}
REACHING = {
    "import_module", "__import__", "resolve_name", "run_path", "run_module", "instantiate", "get_class",
    "get_method", "pickle", "dill", "marshal", "shelve", "joblib", "allow_pickle", "yaml.load",
    "yaml.unsafe_load", "yaml.full_load", "register_new_resolver", "exec", "eval", "compile",
}  # fmt: skip


def test_code_is_reached_by_name_in_these_places_only() -> None:
    """A new one has to be added here, and attacked above."""
    found: dict[str, set[str]] = {}
    for path in sorted(file for name in SHIPPED for file in (ROOT / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if names := names_of(node) & REACHING:
                found.setdefault(path.relative_to(ROOT).as_posix(), set()).update(names)
    assert found == BY_NAME


def names_of(node: ast.AST) -> set[str]:
    """What is called, imported or handed over as an option; re.compile is none."""
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        options = {one.arg or "" for one in node.keywords if ast.unparse(one.value) != "False"}
        return options | ({called, called.rpartition(".")[2]} if called != "re.compile" else set())
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.name for alias in node.names} | {getattr(node, "module", None) or ""}
    return set()
