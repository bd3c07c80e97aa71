"""Clients that give up, from the words of a run to its numbers."""

import re
from typing import Any

import numpy as np
import pytest

from servetwin.config.compose.compose import load_config
from servetwin.config.config import Kind
from servetwin.report.table import facts, lost
from servetwin.run.prepared import Simulated
from servetwin.run.simulate import execute, prepare
from serving.vocabulary.errors import UserError

LOOP = ("trace.clients=200", "trace=azure_conv_like", "trace.requests=300")
WORDS = (
    "system=vllm", "cluster=h100_x1", "model=llama3_8b", "trace=azure_conv_like", "trace.requests=300",
    "trace.rate_per_s=60", "uncertainty=off", "out=OUT",
)  # fmt: skip


def run(*words: str) -> Simulated:
    return execute(prepare(load_config([*WORDS, *words], "simulate")))


def told(done: Simulated) -> dict[str, Any]:
    found: dict[str, Any] = done.summary["client_timeouts"]
    return found


def columns_of(done: Simulated) -> dict[str, np.ndarray]:
    return {name: column for name, column in done.columns.items() if isinstance(column, np.ndarray)}


def test_without_the_key_nothing_is_said_of_it() -> None:
    done = run()
    assert "client_timeouts" not in done.summary and "timed_out" not in done.summary["requests"]
    assert not {"retry", "e2e_with_retries_ms"} & done.columns.keys()


def test_clients_that_wait_long_enough_have_the_same_answers() -> None:
    without, patient = run(), run("trace.client_timeout_s=100000", "trace.retries=2")
    assert patient.summary["requests"].pop("timed_out") == 0
    assert told(patient)["time_outs"] == told(patient)["wasted_tokens"] == 0
    for key in ("requests", "ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "slo", "throughput", "duration_s"):
        assert patient.summary[key] == without.summary[key], key
    for name, column in columns_of(without).items():
        assert np.array_equal(columns_of(patient)[name], column, equal_nan=True), name
    assert not columns_of(patient)["retry"].any()
    assert np.array_equal(columns_of(patient)["e2e_with_retries_ms"], columns_of(patient)["e2e_ms"])


@pytest.mark.parametrize("retries", [0, 2])
def test_every_request_is_answered_or_given_up(retries: int) -> None:
    done = run("trace.client_timeout_s=4", f"trace.retries={retries}", "trace.retry_wait_s=0.5")
    requests, counts, columns = done.summary["requests"], told(done), columns_of(done)
    assert requests["finished"] + requests["timed_out"] == requests["arrived"] == 300
    assert counts["given_up"] == requests["timed_out"] > 0
    assert counts["time_outs"] == counts["retries"] + counts["given_up"]
    assert counts["wasted_tokens"] > 0 and columns["e2e_ms"].max() < 4000 + 1
    assert columns["retry"].max(initial=0) <= retries
    assert np.array_equal(np.sort(columns["request"]), columns["request"])
    rest = columns["e2e_with_retries_ms"] - columns["e2e_ms"]
    assert np.allclose(rest, columns["retry"] * 4500.0, atol=1e-3)
    assert done.unserved.columns()["outcome"].words[-1] == "timed_out"  # type: ignore[union-attr]


def test_an_objective_is_missed_by_who_gave_up() -> None:
    done = run("trace.client_timeout_s=4", "slo.ttft_ms=100000", "slo.tpot_ms=100000")
    assert done.summary["slo"]["attainment"] == done.summary["requests"]["finished"] / 300 < 1


def test_with_less_time_than_the_way_in_nobody_is_served() -> None:
    done = run("trace.client_timeout_s=0.0001", "trace.retries=1")
    assert done.summary["requests"]["timed_out"] == 300 and done.summary["requests"]["finished"] == 0
    assert told(done)["on_the_way_in"] == told(done)["time_outs"] == 600
    assert done.events == 0 and told(done)["wasted_tokens"] == 0


def test_clients_of_a_loop_go_on() -> None:
    words = [word for word in WORDS if not word.startswith("trace")]
    gives_up = ("trace.client_timeout_s=3", "trace.retries=1")
    done = execute(prepare(load_config([*words, *LOOP, *gives_up], "simulate")))
    counts = done.summary["requests"]
    assert counts["finished"] + counts["timed_out"] == 300 and counts["timed_out"] > 0


def test_the_report_says_who_gave_up() -> None:
    summary = run("trace.client_timeout_s=4", "trace.retries=1").summary
    shown = dict(facts(summary))
    assert shown["clients gave up"].endswith(f"{summary['client_timeouts']['given_up']} at last")
    assert ("given up by its client", "no last token within 4 s", str(summary["requests"]["timed_out"])) in [
        (outcome, reason.replace("4.00", "4"), count) for outcome, reason, count in lost(summary)
    ]
    assert "clients gave up" not in dict(facts(run().summary))


@pytest.mark.parametrize(
    ("words", "kind", "why"),
    [
        ("model.pp=2 cluster=h100_x2 model=llama3_8b", "simulate", "model.pp=2"),
        ("system=pipeline cluster=quart model=llama2_13b pipeline.stages=4", "simulate", "system=pipeline"),
        ("trace.clients=2 trace.warmup_requests=2", "simulate", "trace.warmup_requests"),
        ("", "realexec", "real runs"),
    ],
)
def test_what_cannot_abort_is_refused(words: str, kind: Kind, why: str) -> None:
    with pytest.raises(UserError, match=rf"trace\.client_timeout_s does not fit {re.escape(why)}"):
        load_config([*words.split(), "trace.client_timeout_s=5", "out=OUT"], kind)
