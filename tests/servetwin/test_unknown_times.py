"""Times of measured files that cannot be true are unknown and counted; all others keep their values."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servetwin.cli import main as cli
from servetwin.compare.formats import read_measured
from servetwin.compare.measured import MeasuredRun
from serving.vocabulary.errors import UserError
from tests.worlds.measured_files import (
    Row,
    as_aiperf,
    as_csv,
    as_guidellm,
    as_jsonl,
    as_lines,
    as_llmservingsim,
    as_llmservingsim_csv,
    bench_run,
)

NAMES = ("ttft_ms", "tpot_ms", "e2e_ms")
COUNT = 20


def rows() -> list[Row]:
    """Twenty requests: 300 ms to the first token, 30 ms for each other one."""
    found = []
    for at in range(COUNT):
        tokens = 101 + at
        found.append({
            "request": at, "arrival_s": 1000.0 + at, "prompt_tokens": 500, "output_tokens": tokens,
            "ttft_ms": 300.0, "tpot_ms": 30.0, "e2e_ms": 300.0 + 30.0 * (tokens - 1), "queue_ms": 10.0,
            "gaps_ms": [30.0] * (tokens - 1),
        })  # fmt: skip
    return found


def bench(path: Path, with_latencies: bool = True, **lists: Any) -> MeasuredRun:
    found = bench_run(rows())
    if with_latencies:
        found["latencies"] = [row["e2e_ms"] / 1e3 for row in rows()]
    path.write_text(json.dumps(found | lists))
    return read_measured(path)


def values(measured: MeasuredRun, name: str) -> list[float | None]:
    """The times, None where unknown, to the microsecond."""
    return [None if value != value else round(value, 3) for value in measured.times[name].tolist()]


def of_rows(name: str) -> list[Any]:
    return [row[name] for row in rows()]


def halved(lists: list[Any], other: Any) -> list[Any]:
    """Every second entry is another one."""
    return [other if at % 2 == 0 else value for at, value in enumerate(lists)]


def test_a_ttft_of_0_is_unknown_and_the_stated_latency_stays(tmp_path: Path) -> None:
    """As vllm bench writes them for answers whose first token it did not see."""
    ttfts, itls = halved([0.3] * COUNT, 0.0), halved(bench_run(rows())["itls"], [])
    found = bench(tmp_path / "a.json", ttfts=ttfts, itls=itls)
    assert values(found, "ttft_ms") == halved(of_rows("ttft_ms"), None)
    assert values(found, "tpot_ms") == halved(of_rows("tpot_ms"), None)
    assert values(found, "e2e_ms") == of_rows("e2e_ms")
    assert not len(found.gaps_ms)
    assert any("TTFT of 10 of 20 requests is unknown" in one and "10: 0" in one for one in found.remarks)
    assert any("TPOT of 10 of 20" in one for one in found.remarks)
    assert any("ITL is unknown: 10 of 20" in one for one in found.remarks)


def test_e2e_is_computed_only_where_ttft_and_gaps_reach_to_the_end(tmp_path: Path) -> None:
    ttfts, itls = halved([0.3] * COUNT, 0.0), halved(bench_run(rows())["itls"], [])
    found = bench(tmp_path / "a.json", with_latencies=False, ttfts=ttfts, itls=itls)
    assert values(found, "e2e_ms") == halved(of_rows("e2e_ms"), None)
    assert any("E2E of 10 of 20 requests is unknown" in one for one in found.remarks)
    whole = bench(tmp_path / "b.json", with_latencies=False)
    assert values(whole, "e2e_ms") == of_rows("e2e_ms") and not whole.remarks
    zero = bench(tmp_path / "c.json", latencies=[0.0] * COUNT)
    assert values(zero, "e2e_ms") == of_rows("e2e_ms"), "a latency of 0 is none"
    no_gaps = bench(tmp_path / "d.json", with_latencies=False, itls=[[]] * COUNT)
    assert values(no_gaps, "e2e_ms") == [None] * COUNT, "TTFT alone is no E2E"


def test_gaps_between_chunks_are_no_inter_token_latencies(tmp_path: Path) -> None:
    """Speculative decoding: a chunk has several tokens; TPOT stays right."""
    chunks = [_chunks([gap / 1e3 for gap in row["gaps_ms"]], 3) for row in rows()]
    found = bench(tmp_path / "a.json", itls=chunks)
    assert not len(found.gaps_ms)
    assert values(found, "tpot_ms") == of_rows("tpot_ms")
    mean_ms = 1e3 * sum(map(sum, chunks)) / sum(map(len, chunks))
    (remark,) = found.remarks
    assert "ITL is unknown: 20 of 20" in remark and f"chunks is {mean_ms:.3g} ms" in remark


def _chunks(gaps: list[float], size: int) -> list[float]:
    return [sum(gaps[at : at + size]) for at in range(0, len(gaps), size)]


def test_itl_leaves_out_few_requests_and_needs_nearly_all(tmp_path: Path) -> None:
    itls = bench_run(rows())["itls"]
    few = bench(tmp_path / "a.json", itls=[_chunks(itls[0], 2), [*itls[1], 0.001], *itls[2:]])
    assert len(few.gaps_ms) == sum(map(len, itls[1:])) + 1, "one gap more: a last chunk without a token"
    assert any("ITL is without 1 of 20 requests" in one for one in few.remarks)
    more = bench(tmp_path / "b.json", itls=[*(_chunks(one, 2) for one in itls[:3]), *itls[3:]])
    assert not len(more.gaps_ms) and "ITL is unknown: 3 of 20" in more.remarks[-1]
    wrong = bench(tmp_path / "c.json", itls=[[*itls[0][1:], 0.0], [0.3] * len(itls[1]), *itls[2:]])
    assert "gaps of 0 or below" in wrong.remarks[-1] and "their sum is not E2E - TTFT" in wrong.remarks[-1]
    assert len(wrong.gaps_ms) == sum(map(len, itls[2:]))


def test_more_gaps_than_tokens_leave_tpot_unknown(tmp_path: Path) -> None:
    """Whoever counts fewer tokens than came computes a TPOT that is too long."""
    found = bench(tmp_path / "a.json", output_lens=[10, *of_rows("output_tokens")[1:]])
    assert values(found, "tpot_ms") == [None, *of_rows("tpot_ms")[1:]]
    assert any("TPOT of 1 of 20" in one for one in found.remarks)


def test_the_wait_in_the_client_is_named_as_unused(tmp_path: Path) -> None:
    found = bench(tmp_path / "a.json", queue_times=halved([0.0] * COUNT, 0.5))
    assert np.isnan(found.times["queue_ms"]).all(), "it is no part of TTFT"
    (remark,) = found.remarks
    assert "queue_times are not used: 10 of 20" in remark and "500 ms" in remark
    assert not bench(tmp_path / "b.json", queue_times=[0.0] * COUNT).remarks


WRITERS: tuple[Callable[[Path, list[Row]], Path], ...] = (
    as_csv, as_jsonl, as_llmservingsim, as_llmservingsim_csv, as_aiperf, as_guidellm,
)  # fmt: skip
CSV_COLUMNS = ("request", "output_tokens", *NAMES, "queue_ms")


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("wrong", [0.0, -5.0])
def test_no_reader_takes_0_or_less_for_a_time(
    write: Callable[[Path, list[Row]], Path], wrong: float, tmp_path: Path
) -> None:
    changed = rows()
    changed[4]["ttft_ms"] = wrong
    found = read_measured(write(tmp_path / "a", changed))
    known = sorted(value for value in values(found, "ttft_ms") if value is not None)
    assert known == [300.0] * (COUNT - 1) and not found.failed.any()
    assert sorted(values(found, "e2e_ms")) == sorted(of_rows("e2e_ms"))  # type: ignore[type-var]
    assert any(
        f"TTFT of 1 of {COUNT}" in one and ("0" if wrong == 0 else "below 0") in one for one in found.remarks
    )
    assert {value for value in values(found, "tpot_ms") if value is not None} == {30.0}


@pytest.mark.parametrize("write", WRITERS)
def test_the_same_files_are_whole_without_the_fault(
    write: Callable[[Path, list[Row]], Path], tmp_path: Path
) -> None:
    found = read_measured(write(tmp_path / "a", rows()))
    assert not found.remarks
    for name in NAMES:
        assert sorted(values(found, name)) == sorted(of_rows(name))  # type: ignore[type-var]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("wrong", [1e300, 10**300, 10**400, 1e16], ids=["float", "whole", "no_float", "near"])
def test_a_time_too_large_for_any_run_is_unknown(wrong: float, tmp_path: Path) -> None:
    for key in ("ttfts", "latencies"):
        whole = [0.3] * COUNT if key == "ttfts" else [row["e2e_ms"] / 1e3 for row in rows()]
        name = "ttft_ms" if key == "ttfts" else "e2e_ms"
        found = bench(tmp_path / "a.json", **{key: [wrong, *whole[1:]]}, itls=[[]] * COUNT)
        assert values(found, name) == [None, *of_rows(name)[1:]]
        assert any("of 1 of 20" in one for one in found.remarks)


def test_a_moment_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"start_times is '1e\+300'"):
        bench(tmp_path / "a.json", start_times=[1e300, *range(1, COUNT)])


@pytest.mark.parametrize("status", ["successful", "errored"])
def test_requests_of_guidellm_that_are_no_list_are_refused(status: str, tmp_path: Path) -> None:
    path = as_guidellm(tmp_path / "a", rows())
    whole = json.loads(path.read_text())
    whole["benchmarks"][0]["requests"][status] = 5
    path.write_text(json.dumps(whole))
    with pytest.raises(UserError, match=f"requests.{status} is no list"):
        read_measured(path)


def of_csv(tmp_path: Path, **changed: Any) -> MeasuredRun:
    """Row 4 of a CSV with all columns is another one."""
    every = rows()
    every[4] |= changed
    return read_measured(as_csv(tmp_path / "a.csv", every, CSV_COLUMNS))


@pytest.mark.parametrize(
    ("changed", "unknown", "why"),
    [
        ({"e2e_ms": 0}, "e2e_ms", "1: 0"),
        ({"e2e_ms": "nan"}, "e2e_ms", "no number"),
        ({"e2e_ms": "1e300"}, "e2e_ms", "no number"),
        ({"e2e_ms": ""}, "e2e_ms", "not in the file"),
        ({"tpot_ms": 90}, "tpot_ms", "not (E2E - TTFT)"),
        ({"ttft_ms": 300 + 30 * 104}, "ttft_ms", "came at once"),
        ({"queue_ms": 400}, "queue_ms", "above TTFT"),
        ({"queue_ms": -1}, "queue_ms", "below 0"),
    ],
)
def test_what_contradicts_others_of_the_request_is_unknown(
    changed: Row, unknown: str, why: str, tmp_path: Path
) -> None:
    found = of_csv(tmp_path, **changed)
    known = values(found, unknown)
    assert known[4] is None and None not in known[:4] + known[5:]
    assert any("of 1 of 20" in one and why in one for one in found.remarks)
    assert len(found.remarks) == 1


def test_a_ttft_above_e2e_leaves_neither(tmp_path: Path) -> None:
    found = of_csv(tmp_path, ttft_ms=9000, tpot_ms="")
    assert [values(found, name)[4] for name in NAMES] == [None] * 3
    assert {one.split()[0] for one in found.remarks} == {"TTFT", "TPOT", "E2E"}


def test_a_wrong_tpot_is_computed_anew_where_the_others_tell_it(tmp_path: Path) -> None:
    assert values(of_csv(tmp_path, tpot_ms=0), "tpot_ms") == [30.0] * COUNT
    one = of_csv(tmp_path, output_tokens=1, tpot_ms=0, e2e_ms=300)
    assert values(one, "tpot_ms")[4] is None and not one.remarks, "one token has no TPOT"
    assert values(one, "ttft_ms") == of_rows("ttft_ms")


def test_stamps_that_never_came_are_not_subtracted(tmp_path: Path) -> None:
    """vLLM's timestamps are 0 until the moment comes."""
    path = as_llmservingsim(tmp_path / "a", rows())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["queued_ts"], lines[1]["first_token_ts"], lines[2]["last_token_ts"] = 0.0, 0.0, 0.0
    found = read_measured(as_lines(path, lines))
    assert found.failed.tolist() == [False, False, True] + [False] * 17
    assert values(found, "ttft_ms") == [None] * 3 + [300.0] * 17
    assert values(found, "e2e_ms")[0] is None and None not in values(found, "e2e_ms")[3:]


def test_an_e2e_that_is_not_from_start_to_end_is_unknown(tmp_path: Path) -> None:
    for write in (as_guidellm, as_aiperf):
        path = write(tmp_path / "a", rows())
        text = path.read_text()
        whole = [json.loads(line) for line in text.splitlines()] if write is as_aiperf else json.loads(text)
        if write is as_guidellm:
            request = whole["benchmarks"][0]["requests"]["successful"][0]
            request["request_end_time"] = request["request_start_time"] + 60
            path.write_text(json.dumps(whole))
        else:
            whole[1]["metadata"]["request_end_ns"] = whole[1]["metadata"]["request_start_ns"] + 60 * 10**9
            as_lines(path, whole)
        found = read_measured(path)
        assert values(found, "e2e_ms").count(None) == 1, write
        assert any("from the request's start to its end" in one for one in found.remarks)


def test_two_clients_say_what_a_run_does_not_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for at in range(4):
        changed = rows()
        if at == 2:
            changed[7]["ttft_ms"] = 0
        paths.append(str(as_csv(tmp_path / f"{at}.csv", changed, CSV_COLUMNS)))
    assert cli.run(["compare", *paths[:2], "against", *paths[2:]]) == 0
    said = capsys.readouterr().out
    assert "TTFT is without 1 requests" in said and "E2E is without" not in said
    assert cli.run(["compare", *paths[:2], "against", *paths[2:], "json=true"]) == 0
    timing = json.loads(capsys.readouterr().out)["timing"]
    assert {name: timing[name]["left_out"] for name in NAMES} == {"ttft_ms": 1, "tpot_ms": 0, "e2e_ms": 0}
