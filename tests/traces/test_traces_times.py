"""Units of times: stated, told by the first time, or by rules; and what is said where one is doubtful."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worlds.refusals import refuses
from traces.errors import TraceError
from traces.formats import FORMATS, format_named, format_of
from traces.importers.azure_functions import read_azure_functions_2021
from traces.importers.burstgpt import read_burstgpt
from traces.importers.mooncake import read_mooncake, write_mooncake
from traces.synthetic.registry import SYNTHETIC
from traces.times import UNITS
from traces.workload import Workload

KEY = "trace.time_unit"
EPOCH_S = 1_780_000_000


def mooncake(*times: str, more: str = "") -> str:
    return "".join(f'{{"timestamp": {t}, "input_length": 30, "output_length": 4{more}}}\n' for t in times)


def bench(*times: str) -> str:
    return "".join(f'{{"timestamp": {t}, "prompt_len": 30, "output_len": 4}}\n' for t in times)


def servegen(*times: str) -> str:
    return "".join(f'{{"timestamp": {t}, "input_tokens": 30, "output_tokens": 4}}\n' for t in times)


def bailian(*times: str) -> str:
    more = ', "hash_ids": [1, 2], "chat_id": 7, "parent_chat_id": -1'
    return mooncake(*times, more=more)


def table(header: str, row: str) -> Callable[..., str]:
    return lambda *times: header + "\n" + "".join(row.format(time.strip('"')) + "\n" for time in times)


plain_s = table("arrival_s,prompt_tokens,output_tokens", "{},30,4")
plain_ms = table("prompt_tokens,arrival_ms,output_tokens", "30,{},4")
plain_ns = table("arrival_ns,prompt_tokens,output_tokens", "{},30,4")
servegen_csv = table("request_id,timestamp,input_tokens,output_tokens", "0,{},30,4")
azure = table("TIMESTAMP,ContextTokens,GeneratedTokens", "{},30,4")
burstgpt = table(
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type", "{},m,30,4,34,API log"
)
functions = table("app,func,end_timestamp,duration", "a,f,{},0")
llmservingsim = table("arrival_time_ns,input_toks,output_toks", "{},30,4")


def llmservingsim_prefix(*times: str) -> str:
    return mooncake(*times).replace("timestamp", "arrival_time_ns")


WRITERS: dict[str, Callable[..., str]] = {
    "azure": azure, "azure_functions_2021": functions, "bailian": bailian, "burstgpt": burstgpt,
    "csv": plain_s, "llmservingsim": llmservingsim, "llmservingsim_prefix": llmservingsim_prefix,
    "mooncake": mooncake, "servegen": servegen, "servegen_csv": servegen_csv, "vllm_bench": bench,
}  # fmt: skip


def read(folder: Path, text: str, name: str | None = None, **options: Any) -> Workload:
    path = folder / "trace"
    path.write_text(text)
    format = format_of(path) if name is None else format_named(name)
    return format.read(path, options=options)


def seconds(workload: Workload) -> list[float]:
    return [at / 1e9 for at in workload.arrival_ns.tolist()]


def about_times(workload: Workload) -> str:
    (label,) = (label for label in workload.labels if label.startswith("times "))
    return label


def test_every_reader_of_recorded_times_takes_the_key() -> None:
    takes = {name for name, format in FORMATS.items() if "time_unit" in format.options}
    others = {"parquet", "jsonl", "aibrix", "weka"}
    without = {"sharegpt", "azure_functions_2019", "openai_batch", "vllm_result", "guidellm"}
    assert takes == set(WRITERS) | others == set(FORMATS) - without


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("unit", UNITS)
def test_a_stated_unit_holds_in_every_reader(tmp_path: Path, name: str, unit: str) -> None:
    written = {
        "s": ("2", "5"), "ms": ("2000", "5000"), "us": ("2000000", "5000000"),
        "ns": ("2000000000", "5000000000"), "iso": ('"2026-02-03 04:05:06.5"', '"2026-02-03T04:05:09.500Z"'),
    }  # fmt: skip
    times = written[unit]
    if unit == "iso":
        times = (times[0].replace('.5"', '.5+00:00"'), times[1])
    workload = read(tmp_path, WRITERS[name](*times), name, time_unit=unit)
    assert np.diff(workload.arrival_ns).tolist() == [3_000_000_000]
    assert workload.arrival_ns[0] in (0, 2_000_000_000)
    assert KEY not in about_times(workload)


@pytest.mark.parametrize("name", WRITERS)
def test_an_unknown_unit_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TraceError, match=f"{KEY}=minutes is unknown: write one of s, ms, us, ns, iso"):
        read(tmp_path, WRITERS[name]("1", "2"), name, time_unit="minutes")


@pytest.mark.parametrize(
    ("text", "name", "arrivals_s", "unit", "remark"),
    [
        # Mooncake's keys: whole ms are the format's own; seconds have fractions and come 1000 times too fast.
        (mooncake("0", "1500", "3000"), "mooncake", [0, 1.5, 3], "ms", False),
        (mooncake("0.0", "0.25", "0.75", "60.5"), "mooncake", [0, 0.25, 0.75, 60.5], "s", True),
        (mooncake("0", "300.5", "600"), "mooncake", [0, 0.3005, 0.6], "ms", True),  # 3.3/s as ms: kept
        (mooncake("0", "5", "10"), "mooncake", [0, 0.005, 0.01], "ms", True),  # 200/s
        # 20/s as ms for 100 s; as s a request every 50 s for 28 hours.
        (
            mooncake(*(f"{50 * i}.5" for i in range(2001))),
            "mooncake",
            [(50 * i + 0.5) / 1000 for i in range(2001)],
            "ms",
            True,
        ),
        (mooncake(f"{EPOCH_S}000", f"{EPOCH_S}500"), "mooncake", [0, 0.5], "ms", False),
        (mooncake(f"{EPOCH_S}.25", f"{EPOCH_S}.5"), "mooncake", [0, 0.25], "s", True),
        (mooncake(f"{EPOCH_S}000000", f"{EPOCH_S}500000"), "mooncake", [0, 0.5], "us", True),
        (bailian("11.5", "13", "14.25"), "bailian", [11.5, 13, 14.25], "s", False),
        # A benchmark's rows: seconds are the format's own; whole ms come 1000 times too slowly.
        (bench("0.5", "1.75"), "vllm_bench", [0, 1.25], "s", False),
        (bench("0", "1500", "3000"), "vllm_bench", [0, 1.5, 3], "ms", True),
        (bench("0", "1", "2", "3"), "vllm_bench", [0, 1, 2, 3], "s", False),
        (bench("0", "40", "80"), "vllm_bench", [0, 40, 80], "s", False),  # 0.025/s; as ms 25/s
        (bench(f"{EPOCH_S}.5", f"{EPOCH_S + 1}.25"), "vllm_bench", [0, 0.75], "s", False),
        (bench(f"{EPOCH_S}000", f"{EPOCH_S}750"), "vllm_bench", [0, 0.75], "ms", True),
        # Formats of one unit keep it, and doubts are told.
        (servegen("0", "1500", "3000"), "servegen", [0, 1500, 3000], "s", True),
        (servegen_csv("0", "1500", "3000"), "servegen_csv", [0, 1500, 3000], "s", True),
        (servegen_csv("0", "0.001", "0.002"), "servegen_csv", [0, 0.001, 0.002], "s", True),  # 1000/s
        (servegen_csv("0.5", "1.5"), "servegen_csv", [0, 1], "s", False),
        (burstgpt("5", "45", "118"), "burstgpt", [0, 40, 113], "s", False),
        # Names of columns state the unit; years are told all the same.
        (plain_s(f"{EPOCH_S}", f"{EPOCH_S + 3}.5"), "csv", [0, 3.5], "s", False),
        (plain_ms(f"{EPOCH_S}000", f"{EPOCH_S}250"), "csv", [0, 0.25], "ms", False),
        (plain_ms(f"{EPOCH_S}", f"{EPOCH_S + 2}"), "csv", [0, 2], "s", True),
        (plain_ns(f"{EPOCH_S}000000000", f"{EPOCH_S}250000000"), "csv", [0, 0.25], "ns", False),
        (plain_s("0", "400000000"), "csv", [0, 4e8], "s", True),
    ],
)  # fmt: skip
def test_a_unit_is_taken_by_rules_and_doubts_are_told_until_it_is_stated(
    tmp_path: Path, text: str, name: str, arrivals_s: list[float], unit: str, remark: bool
) -> None:
    workload = read(tmp_path, text)
    assert format_of(tmp_path / "trace").name == name
    assert seconds(workload) == arrivals_s
    label = about_times(workload)
    assert label.startswith(f"times in {unit}") and (KEY in label) == remark
    stated = read(tmp_path, text, time_unit=unit)
    assert seconds(stated) == arrivals_s and KEY not in about_times(stated)


@pytest.mark.parametrize("name", WRITERS)
def test_dates_are_recognised_and_count_from_the_first(tmp_path: Path, name: str) -> None:
    dates = ('"2026-01-01T00:00:00.123Z"', '"2026-01-01T00:00:01.5Z"', '"2026-01-01T02:00:00.25+02:00"')
    workload = read(tmp_path, WRITERS[name](dates[0], dates[2], dates[1]), name)
    assert seconds(workload) == [0, 0.127, 1.377]
    refuses(TraceError, "time zone", read, tmp_path, WRITERS[name](dates[0], '"2026-01-01T00:00:03"'), name)


def test_plain_columns_of_relative_times_have_no_label(tmp_path: Path) -> None:
    assert read(tmp_path, plain_s("0.5", "1")).labels == read(tmp_path, plain_ns("5", "6")).labels == ()
    assert seconds(read(tmp_path, plain_s("0.5", "1"))) == [0.5, 1]


def test_errors_about_times_name_the_key(tmp_path: Path) -> None:
    for text in (
        plain_s("x", "1"),
        plain_s("2", f"{EPOCH_S}000"),
        plain_ns("0.5", "1"),
        mooncake('"x"', "1"),
    ):
        refuses(TraceError, f"{KEY}=s, ms, us, ns or iso", read, tmp_path, text)
    with pytest.raises(TraceError, match=f"leave out {KEY}=ms"):
        read(tmp_path, '{"prompt": "Hi", "output_tokens": 5}\n', time_unit="ms", rate_per_s=1.0)


def test_files_written_exactly_say_their_unit(tmp_path: Path) -> None:
    """Their ms have fractions, and many of them come in a second."""
    workload = SYNTHETIC["poisson"](seed=3, requests=50, rate_per_s=60.0)
    path = tmp_path / "exact.jsonl"
    write_mooncake(workload, path, exact=True)
    back = read_mooncake(path)
    assert (back.arrival_ns == workload.arrival_ns).all() and back.labels == ("times in ms",)
    assert read_mooncake(path, time_unit="s").arrival_ns[-1] == 1000 * workload.arrival_ns[-1]


@pytest.mark.parametrize(
    ("column", "unit", "arrivals_s"),
    [
        (lambda pa: pa.array([0, 1500]), "ms", [0, 1.5]),
        (lambda pa: pa.array([0.25, 1.5]), "s", [0.25, 1.5]),
        (lambda pa: pa.array([EPOCH_S, EPOCH_S + 3]), "s", [0, 3]),
        (lambda pa: pa.array([EPOCH_S * 10**9, EPOCH_S * 10**9 + 5]), None, [0, 5e-9]),
        (lambda pa: pa.array([1000, 3500], pa.timestamp("ms", "UTC")), None, [0, 2.5]),
        (lambda pa: pa.array(["2026-01-01 00:00:00", "2026-01-01 00:00:02.5"]), None, [0, 2.5]),
        (lambda pa: pa.array(["2026-01-01 00:00:00", "2026-01-01 00:00:02.5"]), "iso", [0, 2.5]),
    ],
)
def test_parquet_columns_of_other_units(
    tmp_path: Path, column: Callable[[Any], Any], unit: str | None, arrivals_s: list[float]
) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    parquet.write_table(
        pa.table({"arrival_ns": column(pa), "prompt_tokens": [3, 4], "output_tokens": [1, 2]}), path
    )
    workload = FORMATS["parquet"].read(path, options={"time_unit": unit})
    assert seconds(workload) == arrivals_s
    if unit in ("s", "ms"):
        refuses(TraceError, "write dates", FORMATS["parquet"].read, path, options={"time_unit": "iso"})


def test_parquet_refuses_decimals_of_no_unit_and_times_beyond_64_bits(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    for times, unit, part in (
        ([0.5, 1.0], None, f"write int64, or name another unit with {KEY}"),
        ([0, EPOCH_S * 1000], "s", "beyond 292 years"),
        ([0.0, float("nan")], "s", "no numbers"),
    ):
        parquet.write_table(
            pa.table({"arrival_ns": times, "prompt_tokens": [3, 4], "output_tokens": [1, 2]}), path
        )
        with pytest.raises(TraceError) as caught:
            FORMATS["parquet"].read(path, options={"time_unit": unit})
        assert part in str(caught.value)


def test_a_closed_loop_says_nothing_of_units(tmp_path: Path) -> None:
    closed = read(tmp_path, mooncake("0", "5", "10")).in_closed_loop(2)
    assert not any(label.startswith("times ") for label in closed.labels)


@pytest.mark.parametrize(("unit", "durations_s"), [(None, [30.0, 20.0, 0.5]), ("ms", [0.03, 0.0005, 0.02])])
def test_durations_keep_the_published_unit_unless_one_is_stated(
    unit: str | None, durations_s: list[float], tmp_path: Path
) -> None:
    """Ends in ms since 1970 say nothing of the durations beside them."""
    rows = ["app,func,end_timestamp,duration", "a1,f1,1700000000000,30.0", "a1,f2,1700000010000,0.5",
            "a1,f2,1700000011000,20"]  # fmt: skip
    (tmp_path / "af.csv").write_text("\n".join(rows) + "\n")
    found = read_azure_functions_2021(tmp_path / "af.csv", time_unit=unit)
    assert found.source_duration_ns is not None
    assert (found.source_duration_ns / 1e9).tolist() == durations_s


def test_elapsed_times_of_burstgpt_keep_theirs(tmp_path: Path) -> None:
    header = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
    rows = [f"{1_700_000_000_000 + at},s,2.5,GPT-4,10,5,15,API log" for at in (0, 1000)]
    (tmp_path / "b.csv").write_text("\n".join([header, *rows]) + "\n")
    found = read_burstgpt(tmp_path / "b.csv")
    assert found.source_duration_ns is not None and set(found.source_duration_ns.tolist()) == {2_500_000_000}
    assert found.arrival_ns.tolist() == [0, 1_000_000_000]
