"""Finding trace files and loading a trace by name."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.refusals import refuses
from traces.errors import TraceError
from traces.find import FILE_NAMES, find_trace
from traces.load import load

CONV = FILE_NAMES["azure_conv"]
TEXT = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,40,10\n2023-11-16 18:15:47,100,20\n"


def placed(folder: Path, name: str = CONV) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(TEXT)
    return path


def test_folders_are_searched_in_order(tmp_path: Path) -> None:
    first, second, here = tmp_path / "first", tmp_path / "second", tmp_path / "here"
    environ = {"SERVETWIN_TRACES": os.pathsep.join(["", str(first), str(second)])}
    expected = [
        placed(here / "data" / "traces"),
        placed(here / "data", CONV + ".gz"),
        placed(here / "data"),
        placed(second),
        placed(first, CONV + ".gz"),
        placed(first),
    ]
    for path in reversed(expected):
        found = find_trace("azure_conv", environ=environ, current_folder=here)
        assert (found.name, found.path) == ("azure_conv", path)
        path.unlink()
    with pytest.raises(TraceError) as caught:
        find_trace("azure_conv", environ=environ, current_folder=here)
    sentence = str(caught.value)
    for part in (CONV, str(first), str(second), str(here / "data"), "SERVETWIN_TRACES", "trace.path="):
        assert part in sentence
    assert "trace=azure_conv_like" in sentence


def test_a_folder_that_does_not_exist_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"absent \(no such folder\)"):
        find_trace(
            "azure_code", environ={"SERVETWIN_TRACES": str(tmp_path / "absent")}, current_folder=tmp_path
        )


def test_an_explicit_path_wins(tmp_path: Path) -> None:
    environ = {"SERVETWIN_TRACES": str(placed(tmp_path / "folder").parent)}
    mine = placed(tmp_path, "mine.csv")
    assert find_trace("azure_conv", mine, environ=environ).path == mine
    assert find_trace("azure_conv", str(mine), environ=environ).path == mine
    with pytest.raises(TraceError, match=r"trace\.path=.*nothing\.csv does not exist"):
        find_trace("azure_conv", tmp_path / "nothing.csv", environ=environ)


@pytest.mark.parametrize("name", ["azure", "", "azure_conv.csv"])
def test_an_unknown_name_is_refused(name: str) -> None:
    refuses(TraceError, r"azure_code, azure_conv, .*, file, azure_conv_like, ", load, name, environ={})


def test_load_reads(tmp_path: Path) -> None:
    environ = {"SERVETWIN_TRACES": str(placed(tmp_path).parent)}
    workload = load("azure_conv", environ=environ)
    assert workload.name == "azure_conv" and workload.source.startswith(CONV + " sha256=")
    assert workload.arrival_ns.tolist() == [0, 500_000_000] and workload.labels == ()


def test_load_reads_any_file_by_what_it_holds_or_as_told(tmp_path: Path) -> None:
    path = placed(tmp_path, "mine.csv")
    assert load("file", path=path).name == "mine"
    assert load("file", path=path, format="azure").prompt_tokens.tolist() == [40, 100]
    refuses(TraceError, r"mine\.csv, line 1", load, "file", path=path, format="burstgpt")
    with pytest.raises(TraceError, match=r"trace\.format=xls is unknown: write one of azure, burstgpt"):
        load("file", path=path, format="xls")
    refuses(TraceError, r"write trace\.path=FILE", load, "file")


def test_load_synthesises() -> None:
    workload = load("azure_conv_like", seed=4, requests=30, rate_per_s=2)
    assert len(workload) == 30
    assert "seed=4 requests=30 rate_per_s=2 " in workload.source
    assert load("azure_conv_like", rate_per_s=None).source.endswith(
        "requests=19366 rate_per_s=5.53 gap_cv=1.09"
    )


@pytest.mark.parametrize(
    ("name", "options", "part"),
    [
        ("azure_conv_like", {"path": "x.csv"}, "trace.path=x.csv does not apply"),
        ("azure_conv_like", {"format": "azure"}, "trace.format=azure does not apply"),
        ("azure_conv_like", {"turns": "all"}, "trace.turns=all does not apply to azure_conv_like"),
        ("azure_conv_like", {"requests": 0}, "requests=0"),
        ("azure_conv_like", {"rate_per_s": 0}, "rate_per_s=0"),
    ],
)
def test_options_that_do_not_apply_are_refused(name: str, options: dict[str, Any], part: str) -> None:
    with pytest.raises(TraceError) as caught:
        load(name, environ={}, **options)
    assert part in str(caught.value)


def test_a_reader_refuses_options_of_another(tmp_path: Path) -> None:
    environ = {"SERVETWIN_TRACES": str(placed(tmp_path).parent)}
    with pytest.raises(TraceError, match=r"trace\.rate_per_s=2.* read as azure: leave it out"):
        load("azure_conv", environ=environ, rate_per_s=2)


def test_loading_a_trace_does_not_import_pandas() -> None:
    code = (
        "import sys, traces.load; traces.load.load('azure_conv_like', requests=5);"
        " print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
