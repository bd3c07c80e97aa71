"""realexec run world=http and realexec observe on made-up servers: files, replay, refusals, metrics, logs."""

import json
import re
import threading
import time
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from realexec.http.metrics_text import samples_of, values
from servetwin.assemble.build import arrivals_of
from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from servetwin.cli.real_run import WORKER_DIED
from servetwin.config.compose.compose import load_config
from servetwin.run.simulate import prepare
from tests.worlds.fake_openai import FakeServer, Settings

ROOT = Path(__file__).resolve().parents[2]
WORDS = ("trace.limit=12", "trace.rate_scale=8", "trace.tokens_scale=0.05")
Captured = pytest.CaptureFixture[str]


def world(*servers: FakeServer) -> list[str]:
    return ["world=http", f"http.servers=[{','.join(one.url for one in servers)}]"]


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return found


def two(stack: ExitStack, **settings: Any) -> tuple[FakeServer, FakeServer]:
    one = Settings(**{"step_s": 0.004} | settings)
    return stack.enter_context(FakeServer(one)), stack.enter_context(FakeServer(one))


def test_a_run_over_servers_leaves_the_folder_of_any_run_and_replays(tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = two(stack)
        moving = ["system/dispatch=freeness", "system.dispatch.rule=paper", "system/migration=least_loaded"]
        moving += ["system.dispatch.reports_age_ms=10", "migration.period_ms=10", "migration.mode=recompute"]
        words = [*world(*servers), *moving, "journal=true", *WORDS]
        assert realexec_cli.run(["run", *words, f"out={tmp_path / 'run'}"]) == 0
    summary = summary_of(tmp_path / "run")
    real = summary["real"]
    assert summary["requests"]["finished"] == 12 and real["moved"] >= 1
    assert real["tokens_different"] == 0 == real["recomputed_different"] == real["tokens_unchecked"]
    assert real["tokens_recomputed"] > 0 and [one["kind"] for one in real["servers"]] == ["vllm", "vllm"]
    assert cli.run(["replay", str(tmp_path / "run")]) == 0
    assert {one.name for one in (tmp_path / "run").iterdir()} >= {"requests.parquet", "report.html"}
    assert cli.run(["story", str(tmp_path / "run"), "request=3"]) == 0
    again = [f"config={tmp_path / 'run'}", "driver.carries_out=http", f"out={tmp_path / 'sim'}"]
    assert cli.run(["simulate", *again]) == 0, "its twin is simulated under the same mask"


def test_prefill_and_decode_on_servers_of_their_own_by_the_command(tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(FakeServer(Settings(step_s=0.004, nixl=True))) for _ in range(3)]
        words = [*world(*servers), "system=distserve_full", "journal=true", *WORDS]
        assert realexec_cli.run(["run", *words, f"out={tmp_path / 'run'}"]) == 0
    summary = summary_of(tmp_path / "run")
    real = summary["real"]
    assert summary["requests"]["finished"] == real["handed_over"] == 12
    assert real["tokens_checked"] > 0 == real["tokens_different"] == real["tokens_unchecked"]
    assert all(one["hands_over"] for one in real["servers"])
    assert cli.run(["replay", str(tmp_path / "run")]) == 0
    assert cli.run(["story", str(tmp_path / "run"), "request=3"]) == 0
    again = [f"config={tmp_path / 'run'}", "driver.carries_out=http", f"out={tmp_path / 'sim'}"]
    assert cli.run(["simulate", *again]) == 0, "its twin is simulated under the same mask"


def test_observed_repeats_are_compared_with_the_twin(tmp_path: Path, capsys: Captured) -> None:
    """By the commands of the page: two recorded runs, their simulation, the comparison."""
    with ExitStack() as stack:
        one, other = two(stack)
        words = [one.url, other.url, *WORDS, "journal=true", "repeat=2", f"out={tmp_path / 'seen'}"]
        assert realexec_cli.run(["observe", *words]) == 0
    seen = [tmp_path / f"seen-{number}" for number in (1, 2)]
    assert [summary_of(folder)["requests"]["finished"] for folder in seen] == [12, 12]
    twin = [f"config={seen[0]}", "driver.carries_out=http", f"out={tmp_path / 'twin'}"]
    assert cli.run(["simulate", *twin]) == 0
    capsys.readouterr()
    status = cli.run(["compare", str(tmp_path / "twin"), *map(str, seen), "json=true"])
    told = json.loads(capsys.readouterr().out)
    assert status == (0 if told["agrees"] else 1)
    assert set(told["timing"]) >= {"ttft_ms", "e2e_ms"}
    assert all(
        one["requests"] == 12 and one["d_repeat"] >= 0 < one["d_sim"] for one in told["timing"].values()
    )
    # Who gets a request depends on nothing but its turn, here and there.
    assert [one["rate"]["placing"] for one in (*told["decisions"], *told["repeated_decisions"])] == [1.0] * 3


def went_elsewhere(folder: Path, words: list[str]) -> list[bool]:
    """Of normal requests that came while one server alone had one of high priority: who went to the other."""
    config = load_config([*words, "out=OUT"], "realexec")
    prepared = prepare(config)
    arrivals = arrivals_of(config, prepared.workload, prepared.limits)
    priorities = [one.priority for one, _ in arrivals]
    rows = pd.read_parquet(folder / "requests.parquet")
    rows["priority"] = [priorities[number] for number in rows.request]
    found = []
    for one in rows[rows.priority == 0].itertuples():
        there = (rows.arrival_ns < one.arrival_ns) & (rows.finish_ns > one.arrival_ns)
        high = rows[(rows.priority > 0) & there]
        if len(set(high.replica)) == 1:
            found.append(one.replica != high.replica.iloc[0])
    return found


def test_requests_of_high_priority_have_headroom_on_servers(tmp_path: Path) -> None:
    """Llumnix's virtual usage: a server that has one takes normal ones last."""
    shares = {}
    for tokens in (1, "null"):
        with ExitStack() as stack:
            servers = two(stack, step_s=0.02, max_num_seqs=64)
            words = [
                *world(*servers),
                "system/dispatch=freeness",
                "system.dispatch.rule=paper",
                "journal=true",
            ]
            words += [
                "system.dispatch.reports_age_ms=10",
                f"system.dispatch.high_priority_target_tokens={tokens}",
            ]
            words += [
                "trace.limit=40",
                "trace.rate_scale=6",
                "trace.tokens_scale=0.1",
                "trace.high_priority_share=0.1",
            ]
            out = tmp_path / f"run-{tokens}"
            assert realexec_cli.run(["run", *words, f"out={out}"]) == 0
        assert summary_of(out)["requests"]["finished"] == 40 and cli.run(["replay", str(out)]) == 0
        went = went_elsewhere(out, words)
        shares[tokens] = sum(went) / len(went)
    assert shares[1] >= 0.9 > 0.8 > shares["null"], shares


def test_a_token_bucket_admits_what_it_has_tokens_for_over_servers(tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = two(stack)
        words = [*world(*servers), "system/admission=token_bucket", "system.admission.rate_per_s=1"]
        words += ["system.admission.burst=3", "journal=true", "trace.limit=12", "trace.rate_scale=50"]
        assert realexec_cli.run(["run", *words, "trace.tokens_scale=0.05", f"out={tmp_path / 'run'}"]) == 0
    requests = summary_of(tmp_path / "run")["requests"]
    rows = pd.read_parquet(tmp_path / "run" / "requests.parquet")
    span_s = (rows.arrival_ns.max() - rows.arrival_ns.min()) / 1e9
    assert requests["finished"] + requests["rejected"] == 12
    assert 3 <= requests["finished"] <= 3 + span_s + 1 < 12
    assert cli.run(["replay", str(tmp_path / "run")]) == 0


def test_what_servers_cannot_do_is_refused_before_anything_runs(tmp_path: Path, capsys: Captured) -> None:
    with FakeServer() as server, FakeServer() as other, FakeServer(Settings("openai")) as plain:
        moves = "system/migration=least_loaded"
        for words, told in (
            ((*world(server), "system=blitzscale"), "asks for actions that servers behind HTTP do not"),
            ((*world(server), moves), "migration.mode=live copies KV"),
            ((*world(plain), moves, "migration.mode=recompute"), "gives no token ids back"),
            ((*world(server), "workers=3"), "has 1 servers of 1 GPUs, and the cluster has 3"),
            ((*world(server), "http.model=other"), "serves fake, not other"),
            ((*world(server), "http.lost=never"), "http.lost=never is unknown"),
            (("world=http",), "http.servers is missing"),
            ((*world(server, other), "system=distserve_full"), "no kv_transfer_params: start it with"),
            ((*world(server), "http.hand_over=never"), "http.hand_over=never is unknown"),
            (("http.servers=[http://x:1]",), "write world=http too"),
            (("world=moon",), "world=moon is unknown"),
            (("metrics.port=99999",), "metrics.port=99999 is out of range"),
        ):
            assert realexec_cli.run(["run", *words, f"out={tmp_path / 'run'}"]) == 2
            error = capsys.readouterr().err
            assert told in error and error.count("\n") == 1, error
        assert not (tmp_path / "run").exists() and len(server.jobs) <= 12


def test_requests_that_fail_with_their_server_are_said(tmp_path: Path, capsys: Captured) -> None:
    with ExitStack() as stack:
        servers = two(stack, step_s=0.02)
        killer = threading.Thread(target=_kill_when_busy, args=(servers[0],))
        killer.start()
        words = [*world(*servers), "http.lost=fail", "http.scrape_ms=20", *WORDS]
        status = realexec_cli.run(["run", *words, f"out={tmp_path / 'run'}"])
        killer.join()
    summary = summary_of(tmp_path / "run")
    assert status == WORKER_DIED and summary["requests"]["failed"] >= 1
    assert "server 0 was lost" in capsys.readouterr().out


def _kill_when_busy(server: FakeServer) -> None:
    """In the middle of streams of the run, not of those that ask what the server can do."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if any(len(one.prompt) != 8 and len(one.sent) > 1 and not one.ended for one in server.jobs):
            return server.die()
        time.sleep(0.005)
    return None


def test_metrics_of_a_run_can_be_scraped_while_it_lasts(tmp_path: Path, capsys: Captured) -> None:
    texts: list[str] = []
    with ExitStack() as stack:
        servers = two(stack, step_s=0.02)
        words = [*world(*servers), "metrics.port=0", "http.scrape_ms=20", "log=json", *WORDS]
        done = threading.Event()
        scraper = threading.Thread(target=_scrape, args=(capsys, done, texts))
        scraper.start()
        try:
            assert realexec_cli.run(["run", *words, f"out={tmp_path / 'run'}"]) == 0
        finally:
            done.set()
            scraper.join()
    *logs, last = texts
    rows = samples_of(last)
    assert {one.labels.get("engine") for one in rows if one.name == "vllm:num_requests_running"} == {"0", "1"}
    assert sum(values(rows, "servetwin:assigned_total")) >= 1 and values(rows, "vllm:kv_cache_usage_perc")
    (counted,), (inf,) = (
        values(rows, "vllm:time_to_first_token_seconds_count"),
        [
            one.value
            for one in rows
            if one.name.endswith("token_seconds_bucket") and one.labels["le"] == "+Inf"
        ],
    )
    assert counted == inf
    lines = [json.loads(line) for line in "".join(logs).splitlines() if line.startswith("{")]
    assert {"Arrived", "Assign", "Finished"} <= {one["event"] for one in lines}
    assert all(one["reason"] for one in lines if one["event"] == "Assign")


def _scrape(capsys: Captured, done: threading.Event, texts: list[str]) -> None:
    """What is written to stderr, and at last the metrics as they were when requests ran."""
    last, port = "", None
    while not done.wait(0.03):
        texts.append(capsys.readouterr().err)
        found = re.search(r"metrics at http://127\.0\.0\.1:(\d+)/metrics", texts[-1])
        port = port or (found and int(found[1]))
        if port:
            try:
                connection = HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", "/metrics")
                last = connection.getresponse().read().decode()
            except OSError:
                continue
    texts += [capsys.readouterr().err, last]


def test_what_lies_around_the_engines_is_the_clients_ttft_less_what_they_counted(tmp_path: Path) -> None:
    words = (*WORDS, "http.check_tokens=0")
    with ExitStack() as stack:
        server = stack.enter_context(FakeServer(Settings(step_s=0.004, way_in_s=0.03)))
        other = stack.enter_context(FakeServer(Settings(step_s=0.004, metrics=False)))
        assert realexec_cli.run(["observe", server.url, *words, f"out={tmp_path / 'seen'}"]) == 0
        assert realexec_cli.run(["observe", other.url, *words, f"out={tmp_path / 'blind'}"]) == 0
        jobs = server.jobs[-12:]
    seen, blind = summary_of(tmp_path / "seen"), summary_of(tmp_path / "blind")
    in_engine = [(job.first_ns - job.entered_ns) / 1e6 for job in jobs]
    assert seen["ttft_engine_ms"]["mean"] == pytest.approx(sum(in_engine) / 12, abs=1e-3)
    around = seen["real"]["front_end"]["around_ms_mean"]
    assert around == pytest.approx(seen["ttft_ms"]["mean"] - seen["ttft_engine_ms"]["mean"]) and around >= 30
    assert seen["real"]["front_end"]["requests"] == 12 and seen["ttft_engine_ms"]["p99"] is None
    assert "ttft_engine_ms" not in blind
    assert blind["real"]["front_end"]["missing"].startswith(
        "no server counts vllm:request_queue_time_seconds"
    )
