"""Configurations, requests, a summary and report pages of runs that are made up."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from servetwin.config.compose.compose import load_config
from servetwin.config.compose.resolved import resolved_yaml
from servetwin.config.config import RunConfig, SloConfig
from servetwin.report.report import write_report
from serving.vocabulary.request import Request


def simulated(*words: str) -> RunConfig:
    return load_config(["out=OUT", *words], "simulate")


SLO = SloConfig(name="test", ttft_ms=100, tpot_ms=20, source="made up")
MS = 1_000_000


def request(id: int, arrival_ms: int) -> Request:
    return Request(id, arrival_ms * MS, 10, 100, "m")


CONFIG = resolved_yaml(load_config(["out=OUT & <more>"], "simulate"))
SPREAD = {"mean": 123.4, "p50": 98.7, "p90": 250.0, "p95": 401.0, "p99": 1234.0, "max": 70_000.0}
SUMMARY: dict[str, Any] = {
    "requests": {"arrived": 1010, "finished": 1000, "rejected": 7, "failed": 2, "dropped": 1},
    "ttft_ms": SPREAD,
    "tpot_ms": SPREAD,
    "itl_ms": SPREAD,
    "e2e_ms": SPREAD,
    "slo": {
        "ttft_attainment": 0.97,
        "tpot_attainment": 0.99999,
        "attainment": 0.9612,
        "goodput_req_per_s": 5.3,
    },
    "throughput": {"req_per_s": 5.5, "output_tokens_per_s": 1153.0},
    "gpu_seconds": 28345.2,
    "instances": {"mean": 8.0, "max": 8},
    "preemptions": 12,
    "sim": {"wall_s": 1.2, "cpu_s": 1.1, "process_cpu_s": 1.9, "requests_per_cpu_s": 16123.0, "events": 9},
    "trace": {
        "name": "azure_conv",
        "source": "Azure <trace>",
        "labels": ["half & half"],
        "dropped": {"empty": 1},
        "truncated_outputs": 4321,
    },
    "rejected_reasons": {"beyond KV [memory]": 7},
    "failed_reasons": {"worker lost": 2},
    "step_time": {"kind": "linear", "source": "profile", "error_band": "9 %"},
    "code": {"version": "0.1", "commit": "0123456789abcdef+changes"},
    "replica_busy_share": [0.5, 0.25],
}


def columns(rows: int, replicas: int = 8, span_s: float = 600.0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    arrival = np.sort(random.uniform(0, span_s, rows)) * 1e9
    ttft_ms, tokens = random.lognormal(4, 1, rows), random.integers(1, 300, rows)
    tpot_ms = random.uniform(10, 60, rows)
    first = arrival + ttft_ms * 1e6
    finish = first + (tokens - 1) * tpot_ms * 1e6
    return {
        "request": np.arange(rows),
        "arrival_ns": arrival.astype(np.int64),
        "prompt_tokens": random.integers(1, 4000, rows),
        "output_tokens": tokens,
        "first_token_ns": first.astype(np.int64),
        "finish_ns": finish.astype(np.int64),
        "replica": random.integers(0, replicas, rows),
        "preemptions": np.zeros(rows, dtype=np.int64),
        "ttft_ms": ttft_ms,
        "tpot_ms": np.where(tokens > 1, tpot_ms, np.nan),
        "e2e_ms": (finish - arrival) / 1e6,
    }


class Page(HTMLParser):
    """Collects tags, attributes and text, and checks that tags are closed in order."""

    void = ("meta", "link", "img", "br", "path", "input")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page(
    tmp_path: Path, rows: dict[str, np.ndarray], summary: dict[str, Any] = SUMMARY, config: str = CONFIG
) -> Page:
    write_report(
        tmp_path / "report.html",
        summary=summary,
        columns=rows,
        config_yaml=config,
        notes=["cap <script>alert(1)</script> used"],
    )
    return Page((tmp_path / "report.html").read_text(encoding="utf-8"))
