"""What a command loads before it works: nothing that it does not use. Counted in modules, not in time."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from servetwin.cli.help_text import help_text
from servetwin.config import options
from servetwin.config.compose import key_list
from servetwin.config.compose.content_cache import FOLDER_VARIABLE
from servetwin.config.compose.key_list import key_list as listed
from tests.worlds.loaded_modules import loaded_after, modules_after

# Hydra merges what is not kept; the others draw, solve, learn, or read tables of other formats.
UNUSED = {
    "antlr4", "asyncio", "hydra", "matplotlib", "multiprocessing", "networkx", "omegaconf", "ortools",
    "pandas", "scipy", "torch", "transformers", "unittest",
}  # fmt: skip
# What a run of a drawn trace on models of the catalogue has no use for.
UNUSED_BY_ONE = {
    "hwmodels.importers", "hwmodels.models.hf_config", "hwmodels.models.hf_quantised",
    "hwmodels.profiles.profile_file", "policies.live", "policies.multicast", "servetwin.api",
    "servetwin.planning", "servetwin.sweeps", "traces.csv", "traces.importers", "traces.synthetic.rate_file",
}  # fmt: skip
FOR_RUNS = UNUSED | {"numpy", "policies", "pyarrow", "rich", "simcore", "simpy", "yaml"}
SERVETWIN = ["", "simulate", "replay", "story", "support", "profile", "profile import", "traces",
             "traces describe", "reproduce", "reproduce blitzscale",
             "reproduce blitzscale fig21"]  # fmt: skip
RUN = ["simulate", "trace=azure_conv_like", "trace.requests=5", "journal=true"]


def command(words: list[str], module: str = "main") -> str:
    return f"from servetwin.cli.{module} import run\nassert run({words!r}) == 0"


def test_a_run_whose_options_are_kept_loads_only_what_it_uses(tmp_path: Path) -> None:
    first, second = ([*RUN, f"out={tmp_path / name}"] for name in ("first", "second"))
    loaded_after(command(first))
    loaded = loaded_after(command([*second, "seed=3"]))
    assert {"numpy", "pyarrow", "simpy"} <= loaded and loaded & UNUSED == set()
    assert (tmp_path / "second" / "report.html").exists()


def test_a_run_of_one_request_loads_no_module_of_another_kind_of_run(tmp_path: Path) -> None:
    words = ["simulate", "trace=azure_conv_like", "trace.requests=1"]
    first, second = (command([*words, f"out={tmp_path / name}"]) for name in ("first", "second"))
    loaded_after(first)
    loaded = modules_after(second)
    others = {name for name in loaded for one in UNUSED_BY_ONE if f"{name}.".startswith(f"{one}.")}
    assert others == set()
    assert len(loaded) < 900, "840 when this was written"


def test_what_a_command_loads_is_not_scanned_for_garbage(tmp_path: Path) -> None:
    """A caller's own process is left as it is."""
    trace = tmp_path / "two.csv"
    trace.write_text("arrival_ns,prompt_tokens,output_tokens\n0,10,2\n5,10,2\n")
    words = ["traces", "describe", str(trace)]
    process = (
        f"import gc, sys\nsys.argv = {['servetwin', *words]!r}\n"
        "from servetwin.cli.main import run\nfrom servetwin.cli.process import as_process\n"
        "assert as_process(run) == 0 and gc.isenabled() and gc.get_freeze_count() > 1000\n"
    )
    modules_after(process)
    modules_after(f"{command(words)}\nimport gc\nassert gc.isenabled() and not gc.get_freeze_count()")


def test_a_recorded_trace_loads_nothing_that_draws(tmp_path: Path) -> None:
    trace = tmp_path / "two.csv"
    trace.write_text("arrival_ns,prompt_tokens,output_tokens\n0,10,2\n5,10,2\n")
    words = ["simulate", "trace=file", f"trace.path={trace}"]
    first, second = (command([*words, f"out={tmp_path / name}"]) for name in ("first", "second"))
    loaded_after(first)
    loaded = modules_after(second)
    drawing = {name for name in loaded if name.startswith(("numpy.random", "traces.synthetic."))}
    assert drawing == {"traces.synthetic.registry"}


def test_parquet_traces_are_written_and_read_without_pandas(tmp_path: Path) -> None:
    """That they are what Arrow makes by itself is in tests/servetwin/test_results_files.py."""
    trace = tmp_path / "mix.parquet"
    drawn = command(["traces", "sample", "zipf_mix", "requests=5", f"out={trace}"])
    converted = command(["traces", "convert", str(trace), f"out={tmp_path / 'mix.csv'}"])
    for code in (drawn, converted):
        loaded = loaded_after(code)
        assert "pyarrow" in loaded and loaded & UNUSED == set()


@pytest.mark.parametrize("words", SERVETWIN)
def test_help_loads_nothing_of_a_run(words: str) -> None:
    helped = command([*words.split(), "--help"])
    loaded_after(helped)  # the list of keys is kept from here on
    assert loaded_after(helped) & FOR_RUNS == set()


@pytest.mark.parametrize("words", ["", "run"])
def test_help_of_realexec_loads_nothing_of_a_run(words: str) -> None:
    helped = command([*words.split(), "--help"], "realexec")
    loaded_after(helped)
    assert loaded_after(helped) & FOR_RUNS == set()


def test_help_is_kept_as_it_is_listed_until_an_option_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    assert help_text("simulate") == listed("simulate") and help_text("realexec") == listed("realexec")
    asked = []

    def counted(kind: Any) -> str:
        asked.append(kind)
        return listed(kind)

    monkeypatch.setattr(key_list, "key_list", counted)
    assert help_text("simulate") == listed("simulate") and asked == []
    folder = tmp_path / "conf"
    shutil.copytree(options.CONF_DIR, folder)
    monkeypatch.setattr(options, "CONF_DIR", folder)
    shutil.copy(folder / "slo" / "blitzscale_8b.yaml", folder / "slo" / "of_mine.yaml")
    assert "of_mine" in help_text("simulate") and asked == ["simulate"]


def test_help_that_a_terminal_would_obey_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    with monkeypatch.context() as patched:
        patched.setattr(key_list, "key_list", lambda kind: "\x1b]0;mine\x07")
        help_text("simulate")
    assert help_text("simulate") == listed("simulate")
