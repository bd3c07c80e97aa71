"""Finding trace files and loading a trace by name."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
    with pytest.raises(TraceError, match=r"azure_conv, azure_code, sharegpt_.*, azure_conv_like"):
        load(name, environ={})


def test_load_reads_limits_and_scales(tmp_path: Path) -> None:
    environ = {"SERVETWIN_TRACES": str(placed(tmp_path).parent)}
    workload = load("azure_conv", environ=environ)
    assert workload.name == "azure_conv" and workload.source.startswith(CONV + " sha256=")
    assert workload.arrival_ns.tolist() == [0, 500_000_000] and workload.labels == ()
    part = load("azure_conv", environ=environ, limit=1, tokens_scale=0.5)
    assert (part.prompt_tokens.tolist(), part.output_tokens.tolist()) == ([20], [5])
    assert part.labels == ("first 1 of 2 requests", "tokens scaled by 0.5")


def test_load_synthesises() -> None:
    workload = load("azure_conv_like", seed=4, requests=30, rate_per_s=2, limit=10)
    assert len(workload) == 10
    assert "seed=4 requests=30 rate_per_s=2 " in workload.source
    assert load("azure_conv_like", limit=5).source.endswith("requests=19366 rate_per_s=5.53 gap_cv=1.09")


@pytest.mark.parametrize(
    ("name", "options", "part"),
    [
        ("azure_conv_like", {"path": "x.csv"}, "trace.path=x.csv does not apply"),
        ("azure_conv", {"rate_per_s": 2.0}, "trace.rate_per_s=2.0 does not apply"),
        ("azure_code", {"requests": 10}, "trace.requests=10 does not apply"),
        ("azure_conv_like", {"limit": 0}, "limit=0"),
        ("azure_conv_like", {"limit": -3}, "limit=-3"),
        ("azure_conv_like", {"requests": 0}, "requests=0"),
        ("azure_conv_like", {"rate_per_s": 0}, "rate_per_s=0"),
        ("azure_conv", {"tokens_scale": 0}, "tokens_scale=0"),
    ],
)
def test_options_that_do_not_apply_are_refused(name: str, options: dict[str, Any], part: str) -> None:
    with pytest.raises(TraceError) as caught:
        load(name, environ={}, **options)
    assert part in str(caught.value)


def test_loading_a_trace_does_not_import_pandas() -> None:
    code = (
        "import sys, traces.load; traces.load.load('azure_conv_like', requests=5);"
        " print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_limit_counts_rows_of_the_file_dropped_ones_included(tmp_path: Path) -> None:
    rows = [
        f"2023-11-16 18:15:4{second}.0000000,10,{output}" for second, output in enumerate([5, 0, 7, 0, 9])
    ]
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n")
    workload = load("azure_conv", path=path, limit=3)
    assert workload.output_tokens.tolist() == [5, 7]
    assert workload.dropped == {"zero output tokens": 1}
    assert workload.labels == ("first 3 of 5 requests",)
