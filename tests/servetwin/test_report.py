"""The report opens offline for any number of rows, and its curves are the data's."""

import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from servetwin.config.compose.compose import load_config
from servetwin.config.compose.resolved import resolved_yaml
from servetwin.report import plots
from servetwin.report.number_text import NOTHING, count, duration, number, share
from servetwin.report.table import print_summary
from servetwin.results import series
from tests.worlds.made_up_results import SPREAD, SUMMARY, columns, page


@pytest.mark.parametrize("rows", [1, 2, 300, 20_000])
def test_a_report_shows_its_run_and_fetches_nothing(tmp_path: Path, rows: int) -> None:
    found = page(tmp_path, columns(rows))
    assert not {"script", "link", "img", "iframe", "object"} & set(found.tags)
    assert not {"src", "href", "srcset"} & {name for name, _ in found.attributes}
    assert "://" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert found.tags.count("svg") == 2 * 8
    for text in (
        "vllm · llama3_8b · a100_x8 · azure_conv",
        "Azure <trace>",
        "half & half",
        "commit 0123456789ab + changes",
        "4,321 outputs cut",
        "96.12 %",
    ):
        assert text in found.text
    for text in ("beyond KV [memory]", "worker lost", "cap <script>", "OUT & <more>", "TTFT SLO 450 ms"):
        assert text in found.text
    numbers = " ".join(value or "" for name, value in found.attributes if name in ("d", "x", "y", "height"))
    assert "nan" not in numbers
    assert "inf" not in numbers


def test_the_page_explains_the_numbers_it_shows(tmp_path: Path) -> None:
    """A run on real workers has no GPU load, so nothing is said of it."""
    unknown = {key: value for key, value in SUMMARY.items() if key != "gpu_load_share"}
    load, busy = "GPU load: what the finished", "GPU busy: the share of time"
    text = page(tmp_path, columns(2), {**unknown, "gpu_load_share": 0.5}).text
    assert load in text and busy in text
    text = page(tmp_path, columns(2), unknown).text
    assert load not in text and busy in text


@pytest.mark.parametrize(
    ("words", "said", "unsaid"),
    [
        (
            ["cluster=a100_x4"],
            [
                "on 4 GPUs of type a100_80g",
                "dispatch: least_outstanding, batching: chunked_prefill, admission: none",
            ],
            [],
        ),
        (
            ["system=blitz_multicast", "cluster=blitz_b"],
            [
                "batching: prefill_first, admission: none, autoscaler: load_monitor, "
                "where parameters come from: multicast, host cache: pool"
            ],
            ["least_outstanding, "],
        ),
        (
            ["cluster=local", "model=tiny_llama", "cluster.gpus=2"],
            ["on 2 CPU cores, 1 per replica"],
            ["GPUs of"],
        ),
    ],
)
def test_the_head_names_devices_and_the_policies_that_decide(
    tmp_path: Path, words: list[str], said: list[str], unsaid: list[str]
) -> None:
    config = resolved_yaml(load_config([*words, "out=x"], "simulate"))
    text = page(tmp_path, columns(2), config=config).text
    assert all(one in text for one in said), text[:600]
    assert not any(one in text for one in unsaid), text[:600]


def test_the_report_of_no_request_says_so(tmp_path: Path) -> None:
    found = page(tmp_path, columns(0), {"requests": {"arrived": 0}, "ttft_ms": {"p99": None}})
    assert "No request finished" in found.text
    assert "svg" not in found.tags


def test_a_report_does_not_grow_with_the_run(tmp_path: Path) -> None:
    page(tmp_path, columns(200_000, replicas=1024))
    assert (tmp_path / "report.html").stat().st_size < 200_000


@pytest.mark.parametrize(
    "change", [{"ttft_ms": 0.0}, {"tpot_ms": np.nan}, {"e2e_ms": 5.0}, {"arrival_ns": 0}]
)
def test_degenerate_columns_are_drawn(tmp_path: Path, change: dict[str, float]) -> None:
    for rows in (3, 2000):
        data = columns(rows)
        for name, value in change.items():
            data[name] = np.full(rows, value, dtype=data[name].dtype)
        assert "nan" not in "".join(
            value or "" for name, value in page(tmp_path, data).attributes if name == "d"
        )


def test_rows_without_an_answer_are_left_out() -> None:
    data = columns(10)
    data["first_token_ns"][3] = -1
    data["finish_ns"][4] = -1
    assert len(series.Requests(data)) == 8


@pytest.mark.parametrize("rows", [1, 2, 7, 100, 5000])
def test_the_distribution_is_that_of_the_values(rows: int) -> None:
    values = np.random.default_rng(rows).exponential(10, rows)
    x, y = series.distribution(np.append(values, np.nan))
    assert len(x) <= 300
    assert y == pytest.approx([(values <= edge).mean() for edge in x])
    assert (x[-1], y[-1]) == (values.max(), 1.0)


def test_the_level_is_the_most_at_once_in_each_bin() -> None:
    random = np.random.default_rng(1)
    starts = random.uniform(0, 100, 400).round(1)
    ends = starts + random.exponential(3, 400).round(1)
    left, most = series.level(starts, ends, 120.0)
    edges = np.append(left, 120.0)
    instants = np.unique(np.concatenate([starts, ends, edges]))
    inside = np.array([((starts <= now) & (now < ends)).sum() for now in instants])
    wanted = [inside[(instants >= low) & (instants < high)].max() for low, high in pairwise(edges)]
    assert most.tolist() == wanted


def test_percentiles_of_all_groups_at_once_are_those_of_each() -> None:
    generator = np.random.default_rng(5)
    groups = [np.sort(generator.exponential(size=size)) for size in (3, 0, 1, 2, 40, 0)]
    counts = np.array([len(group) for group in groups])
    for percent in (0, 33.3, 50, 99, 100):
        expected = [np.percentile(group, percent) if len(group) else np.nan for group in groups]
        found = series._percentile(np.concatenate(groups), counts, percent)
        np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_binned_percentiles_are_those_of_each_bin() -> None:
    times, values = np.linspace(0, 10, 1000), np.tile([1.0, 3.0], 500)
    centres, (low, high) = series.binned_percentiles(times, values, [0, 100])
    assert len(centres) == 20
    assert (low == 1.0).all()
    assert (high == 3.0).all()
    gap = np.concatenate([np.zeros(100), np.full(100, 10.0)])
    _, (middle,) = series.binned_percentiles(gap, np.ones(200), [50])
    assert np.isnan(middle[1:-1]).all()


def test_the_rate_counts_every_request_once() -> None:
    _, per_s = series.rate(np.linspace(0, 50, 1001), 50.0)
    assert per_s.sum() * 50 / len(per_s) == pytest.approx(1001)


@pytest.mark.parametrize("replicas", [1, 64, 65, 1000])
def test_bars_are_few_and_keep_the_mean(replicas: int) -> None:
    labels, values = series.per_replica(np.arange(float(replicas)))
    assert len(labels) == len(values) <= 64
    assert labels[0].startswith("0")
    assert values.mean() == pytest.approx((replicas - 1) / 2, rel=0.05)


def test_ticks_are_round_and_within_the_axis() -> None:
    assert plots.Axis(label="", low=0, high=60).ticks() == [0, 10, 20, 30, 40, 50, 60]
    assert plots.Axis(label="", low=0, high=1.08, whole=True).ticks() == [0, 1]
    assert plots.Axis(label="", low=3, high=1500, log=True).ticks() == [5, 10, 20, 50, 100, 200, 500, 1000]
    assert plots.Axis(label="", low=1, high=1e6, log=True).ticks() == [10.0**decade for decade in range(7)]
    assert plots.Axis(label="", low=1, high=10, write=duration).tick_label(10) == "10 ms"
    assert plots.Axis(label="", low=1, high=10).tick_label(0.25) == "0.25"
    assert plots.Axis(label="", low=1, high=10, write=count).tick_label(1000) == "1,000"


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (number, 0.0123, "0.0123"), (number, 1.005, "1.00"), (number, 12345.6, "12,346"), (number, 0, "0"),
        (number, 7, "7"), (number, None, NOTHING), (number, float("nan"), NOTHING), (number, 1e-7, "1e-07"),
        (duration, 450, "450 ms"), (duration, 1234.0, "1.23 s"), (duration, 3.6e7, "10.0 h"),
        (duration, None, NOTHING), (share, 1.0, "100 %"), (share, 0.99999, "> 99.99 %"), (share, 0.0, "0 %"),
        (share, 1e-9, "< 0.01 %"), (share, 0.975, "97.5 %"), (share, None, NOTHING),
        (count, 1234567, "1,234,567"), (count, None, NOTHING),
    ],
)  # fmt: skip
def test_numbers_are_written_for_people(write: Any, value: float | None, text: str) -> None:
    assert write(value) == text


def printed(summary: dict[str, Any]) -> str:
    out = io.StringIO()
    print_summary(summary, Console(file=out, width=80))
    return out.getvalue()


def test_the_terminal_table_fits_and_tells_the_main_numbers() -> None:
    text = printed(SUMMARY)
    assert max(map(len, text.splitlines())) <= 80
    for part in ("TTFT", "98.7 ms", "1.23 s", "96.12 %", "1,000 of 1,010", "7.87 GPU-hours", "8 / 8"):
        assert part in text
    for part in (
        "7 rejected: beyond KV [memory]",
        "2 failed: worker lost",
        "1 dropped from the trace: empty",
    ):
        assert part in text
    assert "linear, error 9 %" in text


def test_the_terminal_table_of_no_data_is_dashes() -> None:
    assert NOTHING in printed({})
    assert "None" not in printed({"ttft_ms": dict.fromkeys(SPREAD), "gpu_seconds": None, "sim": None})
