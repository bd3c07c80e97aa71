"""``system/GROUP=module:Class``: a class of the user's runs and replays, or is refused in one sentence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from servetwin.config.compose.compose import load_config
from servetwin.config.policy.groups import POLICY_GROUPS
from serving.vocabulary.errors import UserError
from tests.worlds.user_policies import DISPATCH, TINY, here, mine, sentence

__all__ = ["here", "mine"]

ELASTIC = ("system=serverlessllm", "cluster=blitz_b", "trace=azure_conv_like", "trace.requests=20")

OTHERS = """
from policies.admission import TokenBucket
from policies.batching import ChunkedPrefill
from policies.live.live_scaling import LiveScaling
from policies.provisioning import StoreProvisioner
from policies.scaling.load_monitor import LoadMonitor, scaling_rules
from policies.live.zigzag import IlpFree
from servetwin.assemble.copies import cached


class Batches(ChunkedPrefill):
    pass


class Bucket(TokenBucket):
    pass


class Monitor(LoadMonitor):
    def __init__(self, scale_down_ms: float = 333):
        super().__init__(scaling_rules(scale_down_ms=scale_down_ms))


class FromHost(StoreProvisioner):
    def __init__(self, tiers: list[str]):
        super().__init__(tiers)


class Live(LiveScaling):
    def __init__(self, ttft_slo_ms, slo_ms: float | None = None):
        super().__init__(IlpFree(), ttft_slo_ms if slo_ms is None else slo_ms)


class Caches:
    def __init__(self, sizes_bytes, hosts, ttl_s: float = 30.0):
        self._inner = cached(sizes_bytes, hosts, ttl_s=ttl_s)

    caches = property(lambda self: self._inner.caches)
    usage = property(lambda self: self._inner.usage)
"""
BUCKET = ("system.admission.rate_per_s=2", "system.admission.burst=1")
COPIES = list(POLICY_GROUPS["cache"].methods)


def test_a_class_beside_the_user_runs_and_replays(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = "system/dispatch=my_policies:FillFirst"
    words = [*TINY, chosen, "system.dispatch.most=3", "system.dispatch.slack=0.5", "system.dispatch.limit=7"]
    words += ["system.dispatch.names=[x,y]", "system.dispatch.last=true", "system.dispatch.weights=[1,2.5]"]
    assert cli.run(["simulate", *words, "journal=true", "out=run"]) == 0
    reason = "room 0.5 ['x', 'y'] True 7 (1.0, 2.5)"
    assert reason in Path("run/journal").read_text()
    assert cli.run(["replay", "run", chosen]) == 0
    assert ", 0 differ" in capsys.readouterr().out


def test_the_constructor_gives_defaults_and_the_file_has_them_all(mine: Path) -> None:
    config = load_config(
        [*TINY, "system/dispatch=my_policies:FillFirst", "system.dispatch.most=3", "out=x"], "simulate"
    )
    assert config.system.dispatch.params == {
        "most": 3, "slack": 1.0, "names": ["a"], "last": False, "why": "room", "limit": None,
        "weights": [1.0], "how": None,
    }  # fmt: skip
    assert config.system.dispatch.name == config.system.dispatch.policy == "my_policies:FillFirst"


def test_a_console_script_finds_the_module_only_when_it_is_named(mine: Path) -> None:
    """The command itself, in its own process, in the user's folder."""
    (mine / "my_policies.py").write_text("print('imported')\n" + DISPATCH)
    code = "import sys; sys.path = [p for p in sys.path if p]; from servetwin.cli.main import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])}

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-P", "-c", code, *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )

    chosen = "system/dispatch=my_policies:FillFirst"
    done = run("simulate", *TINY, chosen, "system.dispatch.most=3", "journal=true", "out=run")
    assert done.returncode == 0 and done.stdout.count("imported") == 1, done.stderr
    refused = run("replay", "run")
    assert refused.returncode == 2 and "imported" not in refused.stdout
    assert f"write {chosen} behind it" in refused.stderr
    again = run("replay", "run", chosen)
    assert again.returncode == 0 and again.stdout.startswith("imported") and ", 0 differ" in again.stdout


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("system.dispatch.most=x", ["most=x is wrong", "wants an integer", "system.dispatch.most=8"]),
        ("system.dispatch.most=1.5", ["system.dispatch.most=1.5", "an integer"]),
        ("system.dispatch.most=null", ["system.dispatch.most=null", "an integer"]),
        ("system.dispatch.slack=big", ["a number"]),
        ("system.dispatch.last=7", ["true or false"]),
        ("system.dispatch.names=a", ["a list of words", "[A,B]"]),
        ("system.dispatch.weights=[a]", ["a list of numbers", "[0.5,2]"]),
        ("system.dispatch.limit=a", ["an integer or null"]),
        ("system.dispatch.how=mid", ["one of far, near or null", "system.dispatch.how=far"]),
        ("system.dispatch.random=5", ["unknown key", "write only system.dispatch.how, "]),
        ("system.dispatch.mots=5", ["unknown key 'system.dispatch.mots'", "system.dispatch.most"]),
        ("system.dispatch.most=0", ["fill first needs most of at least 1"]),
        ("seed=1", ["system.dispatch.most has no default: write system.dispatch.most=VALUE"]),
    ],
)  # fmt: skip
def test_parameters_are_typed_by_the_constructor(
    mine: Path, value: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = [value] if ".most=" in value else [value, "system.dispatch.most=3"][: 1 + (value != "seed=1")]
    said = sentence(["simulate", *TINY, "system/dispatch=my_policies:FillFirst", *given, "out=x"], capsys)
    assert all(word in said for word in words), said
    assert not Path("x").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my_policies:NoMethod", ["no Dispatcher", "has no method dispatch(request, fleet); add it"]),
        (
            "my_policies:OtherArguments",
            ["a method dispatch that cannot be called as dispatch(request, fleet)"],
        ),
        ("my_policies:fill_first", ["has the function fill_first", "my_policies:FillFirst"]),
        ("my_policies:Nobody", ["has nothing of that name", "my_policies:FillFirst"]),
        ("my_policies:Random", ["no Dispatcher"]),
        ("my_policies:Odd", ["wants how", "int, float, bool, str or list"]),
        (
            "my_policies:Breaks",
            ["stopped with KeyError: 'of the constructor', my_policies.py line", "mend it"],
        ),
        ("my_policies:Leaves", ["stopped with SystemExit: 0"]),
        ("nowhere:X", ["no module nowhere in the folder you are in"]),
        ("subprocess:getoutput", ["the function getoutput", "a Dispatcher is a class"]),
        ("subprocess:Popen", ["no Dispatcher"]),
        (
            "my_policies.py:FillFirst",
            ["a file and not its module: write system/dispatch=my_policies:FillFirst"],
        ),
        ("nowhere.py:X", ["no module nowhere in the folder you are in"]),
        ("./my_policies:FillFirst", ["is no class", "write system/dispatch=module:Class"]),
        ("my_policies.FillFirst", ["is no class", "write system/dispatch=module:Class"]),
        ("fill_first", ["least_outstanding", "or system/dispatch=module:Class for a class of yours"]),
        ("policy_from_outside", ["unknown option"]),
    ],
)
def test_what_is_no_policy_of_the_group_is_refused_before_it_is_called(
    mine: Path, name: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = sentence(["simulate", *TINY, f"system/dispatch={name}", "out=x"], capsys)
    assert all(word in said for word in words), said


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def x(:\n", "SyntaxError: invalid syntax, broken.py line 1"),
        (
            "\nimport no_such_package\n",
            "ModuleNotFoundError: No module named 'no_such_package', broken.py line 2",
        ),
        ("from policies import nothing_there\n", "ImportError"),
        ("raise SystemExit(0)\n", "SystemExit: 0, broken.py line 1"),
        ("import sys\nsys.exit('bye')\n", "SystemExit: bye, broken.py line 2"),
        ("1 / 0\n", "ZeroDivisionError: division by zero, broken.py line 1"),
        ("raise RuntimeError('two\\nlines')\n", "RuntimeError: two lines"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_in_one_sentence(
    here: Path, code: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "broken.py").write_text(code)
    text = sentence(["simulate", *TINY, "system/dispatch=broken:X", "out=x"], capsys)
    assert said in text and "mend the module broken" in text


@pytest.mark.parametrize("name", ["json", "policies.mine", "policies.dispatch"])
def test_a_file_that_another_module_hides_is_not_taken_for_it(
    here: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(*name.split(".")).with_suffix(".py")
    file.parent.mkdir(exist_ok=True)
    file.write_text(DISPATCH)
    said = sentence(["simulate", *TINY, f"system/dispatch={name}:FillFirst", "out=x"], capsys)
    assert f"{file} of the folder you are in is hidden by another module" in said and "rename it" in said


@pytest.mark.parametrize("package", [False, True])
def test_a_module_of_a_folder_imports_what_is_beside_it(here: Path, package: bool) -> None:
    name = f"my_folder_{package}"
    (here / name).mkdir()
    (here / f"{name}_helper.py").write_text(DISPATCH)
    (here / name / "mine.py").write_text(f"from {name}_helper import FillFirst\n")
    if package:
        (here / name / "__init__.py").write_text("")
    words = [*TINY, f"system/dispatch={name}.mine:FillFirst", "system.dispatch.most=2", "out=x"]
    assert load_config(words, "simulate").system.dispatch.params["most"] == 2


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ("batcher", [*TINY, "system/batcher=others:Batches", "engine.max_num_seqs=4"]),
        ("admission", [*TINY, "system/admission=others:Bucket", *BUCKET]),
        ("scaler", [*ELASTIC, "system/scaler=others:Monitor"]),
        ("provision", [*ELASTIC, "system/provision=others:FromHost", "system.provision.tiers=[host,ssd]"]),
        ("cache", [*ELASTIC, "system/cache=others:Caches", "system.cache.ttl_s=9"]),
        ("live", [*ELASTIC, "system/live=others:Live"]),
    ],
)  # fmt: skip
def test_every_group_takes_a_class(
    here: Path, group: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    passed_on = "".join(
        f"    def {name}(self, *a):\n        return self._inner.{name}(*a)\n" for name in COPIES
    )
    (here / "others.py").write_text(OTHERS + passed_on)
    assert cli.run(["simulate", *words, "journal=true", "out=run"]) == 0
    name = next(word for word in words if word.startswith(f"system/{group}="))
    assert f"write {name} behind it" in sentence(["replay", "run"], capsys)
    assert cli.run(["replay", "run", name]) == 0


def test_a_batcher_follows_the_engine(here: Path) -> None:
    (here / "others.py").write_text(OTHERS)
    words = [*TINY, "system/batcher=others:Batches", "engine.max_num_seqs=4", "out=x"]
    assert load_config(words, "simulate").system.batcher.params["max_num_seqs"] == 4
    with pytest.raises(UserError, match=r"write engine.max_num_seqs=VALUE"):
        load_config([*words, "system.batcher.max_num_seqs=9"], "simulate")


def test_real_workers_take_the_same_words(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["system/dispatch=my_policies:FillFirst", "system.dispatch.most=2", "out=x"]
    config = load_config(words, "realexec")
    assert (config.system.dispatch.policy, config.system.dispatch.params["most"]) == (
        "my_policies:FillFirst",
        2,
    )
    refused = ["run", "system/dispatch=my_policies:NoMethod", "out=x"]
    assert "no Dispatcher" in sentence(refused, capsys, realexec_cli.run)


def test_a_scaler_is_told_the_objectives(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By name, so that they are not written twice."""
    (mine / "objectives.py").write_text(
        "from policies.scaling.load_monitor import LoadMonitor, scaling_rules\n\n"
        "class Monitor(LoadMonitor):\n"
        "    def __init__(self, ttft_slo_ms, tpot_slo_ms):\n"
        "        super().__init__(scaling_rules())\n"
        "        print('objectives', ttft_slo_ms, tpot_slo_ms)\n"
    )
    words = [*ELASTIC, "system/scaler=objectives:Monitor", "slo.ttft_ms=700", "slo.tpot_ms=80"]
    assert cli.run(["simulate", *words, "uncertainty=off", "out=run"]) == 0
    assert "objectives 700.0 80.0" in capsys.readouterr().out
