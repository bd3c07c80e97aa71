"""The short readers on the CSV engine: Azure multimodal, Azure Functions 2021, ServeGen, LLMServingSim."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worlds.refusals import refuses
from traces.errors import TraceError
from traces.importers.azure import read_azure
from traces.importers.azure_functions import read_azure_functions_2021, short_names
from traces.importers.llmservingsim import read_llmservingsim
from traces.importers.requests import DROPPED_ZERO_OUTPUT, NO_LENGTHS
from traces.importers.servegen import read_servegen_csv
from traces.workload import Workload

NS = 10**9
APPS = ["734272c01926d196" + "0" * 48, "734272c01926d197" + "0" * 48, "aa" * 32]
FUNC = "313c03f53a0d31f7" + "0" * 48


def written(folder: Path, *lines: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_azure_multimodal_rows_have_images(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens",
        "2024-10-15 00:00:00.5,2,1500,30",
        "2024-10-15 00:00:01,0,20,0",
        "2024-10-15 00:00:02,0,20,5",
    )
    workload = read_azure(path)
    assert workload.images is not None and workload.images.tolist() == [2, 0]
    assert workload.arrival_ns.tolist() == [0, 1_500_000_000]
    assert workload.dropped == {DROPPED_ZERO_OUTPUT: 1}
    with pytest.raises(TraceError, match=r"line 2, column NumImages: '-1' is negative"):
        read_azure(
            written(
                tmp_path, "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens", "2024-10-15 00:00:00,-1,1,1"
            )
        )


def test_functions_arrive_when_they_began(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "app,func,end_timestamp,duration",
        f"{APPS[0]},{FUNC},5160.142570018768,0.134",
        f"{APPS[2]},{FUNC},5161.280997037888,10.25",
        f"{APPS[0]},{FUNC},5160.142570018768,0.134",
        f"{APPS[2]},{APPS[0]},5160.142570018768,0.0",
        name="functions.txt",
    )
    workload = read_azure_functions_2021(path)
    starts_ns = [5_151_030_997_038, 5_160_008_570_019, 5_160_008_570_019, 5_160_142_570_019]
    assert workload.arrival_ns.tolist() == [start - starts_ns[0] for start in starts_ns]
    assert workload.model is not None and workload.source_duration_ns is not None
    assert workload.model.tolist() == [
        "aaaaaaaa/313c03f5", "734272c0/313c03f5", "734272c0/313c03f5", "aaaaaaaa/734272c0",
    ]  # fmt: skip
    assert workload.source_duration_ns.tolist() == [10_250_000_000, 134_000_000, 134_000_000, 0]
    assert set(workload.prompt_tokens.tolist()) == set(workload.output_tokens.tolist()) == {1}
    assert (workload.labels, workload.name, workload.rows_read) == (
        ("times in s", NO_LENGTHS),
        "functions",
        4,
    )
    part = read_azure_functions_2021(path, limit=1)
    assert part.model is not None and part.model.words == ("aaaaaaaa/313c03f5",)
    assert part.labels == ("first 1 of 4 requests", "times in s", NO_LENGTHS) and part.rows_read == 1


def test_short_names_grow_only_where_functions_would_merge() -> None:
    pairs = [(APPS[0], FUNC), (APPS[1], FUNC), (APPS[2], FUNC)]
    assert short_names(pairs) == (
        "734272c01926d196/313c03f53a0d31f7", "734272c01926d197/313c03f53a0d31f7", "aaaaaaaa/313c03f5",
    )  # fmt: skip
    long = [("a" * 63 + end, "f") for end in "xyz"]
    assert short_names(long) == tuple(f"{app}/f" for app, _ in long)
    refuses(TraceError, "without /", short_names, [("a/b", "c"), ("a", "b/c")])


def test_a_negative_duration_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "app,func,end_timestamp,duration", "a,b,5.5,-1")
    refuses(TraceError, "line 2, column duration: '-1' is negative", read_azure_functions_2021, path)


def test_servegen_rows(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "request_id,timestamp,input_tokens,output_tokens,reason_tokens,answer_tokens",
        "0,0.125,10,20,15,5",
        "1,5e-01,11,0,0,0",
        "2,1.5,12,22,,",
    )
    workload = read_servegen_csv(path)
    assert workload.arrival_ns.tolist() == [0, 1_375_000_000]
    assert (workload.prompt_tokens.tolist(), workload.output_tokens.tolist()) == ([10, 12], [20, 22])
    assert workload.dropped == {DROPPED_ZERO_OUTPUT: 1}
    with pytest.raises(TraceError, match="column 'client' is unknown"):
        read_servegen_csv(written(tmp_path, "timestamp,input_tokens,output_tokens,client", "0,1,1,2"))


def test_llmservingsim_rows(tmp_path: Path) -> None:
    header = "arrival_time_ns,input_toks,output_toks"
    path = written(tmp_path, header, "46926808,2358,531", "46926809,1,1")
    workload = read_llmservingsim(path, limit=1)
    assert workload.arrival_ns.tolist() == [46926808] and workload.labels == ("first 1 of 2 requests",)
    assert (workload.prompt_tokens.tolist(), workload.output_tokens.tolist()) == ([2358], [531])
    for row, part in [
        ("5,0,1", "line 2, column input_toks"), ("5,1,0", "line 2, column output_toks"),
        ("5,1", "line 2: 2 fields are too few"), ("-5,1,1", "line 2, column arrival_time_ns"),
    ]:  # fmt: skip
        refuses(TraceError, part, read_llmservingsim, written(tmp_path, header, row))
    assert read_llmservingsim(written(tmp_path, header, "5,1,1", "4,2,1")).prompt_tokens.tolist() == [2, 1]


@pytest.mark.parametrize(
    "read", [read_azure, read_azure_functions_2021, read_servegen_csv, read_llmservingsim]
)
def test_every_reader_refuses_what_is_no_trace(tmp_path: Path, read: Callable[..., Workload]) -> None:
    for lines in ([], ["x,y", "1,2"], ["\x00\xff"]):
        refuses(TraceError, r"trace\.csv", read, written(tmp_path, *lines))
    refuses(TraceError, "does not exist", read, tmp_path / "absent.csv")
    refuses(TraceError, r"trace\.limit=0", read, tmp_path / "absent.csv", limit=0)
