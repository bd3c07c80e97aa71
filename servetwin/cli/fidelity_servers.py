"""Measurements of ``realexec fidelity http.start=...``: runs of a stock server, their twins, agreement."""

import csv
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from realexec.http.instance_launcher import start_first
from realexec.http.server_launcher import ServerLauncher
from servetwin.cli.calibrate import ASYNCHRONOUS, words_of_engine, words_of_profile
from servetwin.cli.compare_repeats import agreement_data
from servetwin.cli.fidelity_folder import (
    codes_of,
    environment,
    has_summary,
    print_progress,
    quiet_file,
    reals_of,
    summary_of,
    without_host,
)
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.measured_links import CALIBRATION
from servetwin.config.config import RunConfig
from servetwin.config.whole_file import whole_file, write_whole
from servetwin.run import calibrated
from servetwin.run.calibrated_server import calibrate_server
from servetwin.run.http_run import API_KEY
from servetwin.run.quiet_gate import MOST_WAIT_S, wait_until_quiet
from servetwin.run.real_folder import real_folder, simulated_folder
from servetwin.run.simulate import prepare
from servetwin.run.started_servers import measured_starts, start_rules
from serving.vocabulary.errors import UserError
from serving.vocabulary.units import NS_PER_S
from traces.workload import Workload

# All constants that verdicts depend on are here and in servetwin/compare/repeated.py; they were written
# before the first run that was judged. A command with fewer repeats or shorter runs claims nothing.
REPEATS: Final = 5  # one of them may be disturbed
# Loads as shares of what one server keeps up with. The wait in a queue grows as 1 / (1 - load): a machine
# that is 1 % slower makes it longer by 1 / (1 - load) %. At 0.6 that is 2.5 %, so repeats whose speeds differ
# by 8 % still lie within the 20 % in which rows decide; at 0.9 it would be 10 %.
LOADS: Final = {"light": 0.3, "loaded": 0.6}
SCALING: Final = "scaling"
BURST_LOAD: Final = 0.7
QUIET_LOAD: Final = 0.1
# Seconds of arrivals. A static run has some hundreds of requests, so that the mean of a run does not depend
# on a few long ones. The burst lasts AFTER_START_S longer than a start, so that two servers serve a while.
STATIC_S: Final = 90.0
AFTER_START_S: Final = 30.0
QUIET_S: Final = 40.0
CUT_DOWN: Final = 6.0  # quick=true: seconds are divided by it
# The scaler: Kubernetes' autoscaler on requests per instance, quick enough for a run of minutes. Its target
# is 3/8 of a server's batch: the burst keeps over half of the batch busy and the quiet time under a tenth, so
# whether it starts and stops the second server does not hang on chance.
TARGET: Final = 3 / 8
SCALER: Final = {
    "system": "allcache", "system.instances.split": "false", "system/scaler": "hpa",
    "system.scaler.metric": "concurrency", "system.scaler.sync_s": "2",
    "system.scaler.stabilisation_s": "10", "system.signals.scrape_s": "1", "system.signals.window_s": "10",
}  # fmt: skip
STARTS: Final = 2  # of a second server, timed before the runs
CASES: Final = (*LOADS, SCALING)
BASE: Final = {
    "model": "tiny_llama", "trace": "azure_conv_like", "trace.tokens_scale": "0.1", "http.cores": "1",
    "http.check_tokens": "200",
    # A page of vLLM's metrics took its API server 13 to 31 ms, of a core that the engine shares.
    "http.scrape_ms": "1000",
}  # fmt: skip
START: Final = "http.start"
_FIXED: Final = frozenset(
    (*SCALER, "system.scaler.target", "journal", "config", "world", "workers", "http.servers",
     "engine.profile", "trace.limit", "trace.utilization", "trace.path")
)  # fmt: skip
_SERIES_S: Final = 0.5
_MOST_REQUESTS: Final = 10_000


@dataclass(frozen=True)
class ServerFidelity:
    """``keys``: those of `realexec run` that apply to all cases, ``http.start`` among them."""

    out: Path
    repeats: int
    quick: bool
    cases: tuple[str, ...]
    keys: Mapping[str, str]

    @property
    def shorter(self) -> float:
        """By what seconds of arrivals are divided."""
        return CUT_DOWN if self.quick else 1.0

    @property
    def profile(self) -> Path:
        """The folder of the calibration."""
        return self.out / "profile"

    @cached_property
    def record(self) -> dict[str, Any]:
        """What calibration.json holds."""
        answer: dict[str, Any] = json.loads((self.profile / CALIBRATION).read_text(encoding="utf-8"))
        return answer

    @cached_property
    def starts(self) -> list[dict[str, Any]]:
        """Phases of the starts that were timed before the runs."""
        answer: list[dict[str, Any]] = json.loads((self.out / "starts.json").read_text(encoding="utf-8"))
        return answer

    @property
    def start_s(self) -> float:
        """What a start takes in the simulation."""
        return float(np.mean([start["ready_s"] for start in self.starts]))

    def config(self, *words: str, workers: int, out: str = "unused") -> RunConfig:
        """Return the configuration of a real run, which starts its servers."""
        keys = {**BASE, **self.keys, "world": "http", "workers": str(workers)}
        given = {word.partition("=")[0] for word in words}
        if "http.servers" in given:
            keys = {name: text for name, text in keys.items() if name not in (START, "http.cores")}
        kept = [f"{name}={text}" for name, text in keys.items() if name not in given]
        return load_config([*kept, *words, f"out={self.out / out}"], "realexec")


def fixed_settings(quick: bool) -> dict[str, Any]:
    """Return the constants and the machine, under which results may be put together."""
    machine = calibrated.machine()
    return {
        "loads": LOADS, "burst_load": BURST_LOAD, "quiet_load": QUIET_LOAD, "static_s": STATIC_S,
        "after_start_s": AFTER_START_S, "quiet_s": QUIET_S, "target": TARGET, "scaler": SCALER, "keys": BASE,
        "quick": quick, "machine": [machine["processor"], machine["cores"]],
    }  # fmt: skip


def check(asked: ServerFidelity) -> None:
    """Raise UserError for wrong arguments, before anything is measured or written."""
    for key in asked.keys:
        if key in _FIXED:
            raise UserError(f"{key}={asked.keys[key]} is said by each case: leave it out")
    if unknown := [name for name in asked.cases if name not in CASES]:
        raise UserError(f"there is no case {unknown[0]!r}: write cases= with some of {', '.join(CASES)}")
    ServerLauncher(start_rules(asked.config(workers=2), None), 2, asked.out)  # whether there are cores enough


def measured(asked: ServerFidelity) -> dict[str, Any]:
    """Return the content of fidelity.json."""
    _calibrate(asked)
    for name in asked.cases:
        _write_trace(asked, name)
    for number in range(1, asked.repeats + 1):
        _round(asked, number)
    cases = {name: _case(asked, name) for name in asked.cases}
    record = asked.record
    return {
        "format": "servetwin-server-fidelity", "schema": 1,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "code": codes_of(asked.out, cases, asked.repeats),
        "machine": without_host(calibrated.machine()), "environment": environment(),
        "keys": {name: text for name, text in {**BASE, **asked.keys}.items() if name != START},
        "repeats": asked.repeats, "cut_down": asked.quick or asked.repeats < REPEATS,
        "server": {key: value for key, value in record["server"].items() if key != "address"},
        "profile": {name: record[name] for name in ("date", "noisy", "took_s", "front_end")}
        | {"steps": len(record["steps"])},
        "starts": asked.starts, "start_s": asked.start_s, "cases": cases,
    }  # fmt: skip


def _calibrate(asked: ServerFidelity) -> None:
    """Start servers, time starts and measure steps, unless both were measured; before the first run."""
    starts = asked.out / "starts.json"
    if starts.is_file() and (asked.profile / CALIBRATION).is_file():
        return
    config = asked.config(workers=2)
    print_progress("a server is started and measured")
    with ServerLauncher(start_rules(config, os.environ.get(API_KEY)), 2, asked.out / "measured") as launcher:
        address = start_first(launcher).address
        if not starts.is_file():
            print_progress(f"{STARTS} starts of a second server are timed while the first has requests")
            write_whole("out", starts, json.dumps(measured_starts(launcher, config, STARTS), indent=1) + "\n")
        if not (asked.profile / CALIBRATION).is_file():
            print_progress("steps and front end of the server are measured")
            of_server = asked.config(f"http.servers=[{address}]", workers=1, out="profile")
            repeats = calibrated.QUICK_REPEATS if asked.quick else calibrated.REPEATS
            wait_until_quiet(0.0 if asked.quick else MOST_WAIT_S)
            asynchronous = _asynchronous(asked.keys, launcher.report()["servers"][0].get("device"))
            calibrate_server(of_server, asked.quick, repeats, asynchronous=asynchronous)


def _asynchronous(keys: Mapping[str, str], device: str | None) -> bool | None:
    """Whether the server schedules a step during the one before it; None where nothing says so.

    vLLM does by default, unless told not to, and never on CPUs (check_and_update_config of its CPU platform).
    """
    if ASYNCHRONOUS in keys:
        return keys[ASYNCHRONOUS] == "true"
    return False if device == "cpu" or "--no-async-scheduling" in keys[START].split() else None


def _write_trace(asked: ServerFidelity, name: str) -> None:
    """Write the case's requests: the lengths and gaps of the trace, at the case's loads."""
    path = asked.out / f"{name}.csv"
    if path.is_file():
        return
    workload = _requests(asked)
    fits = workload.prompt_tokens + workload.output_tokens <= _longest(asked)
    prompts, outputs = workload.prompt_tokens[fits], workload.output_tokens[fits]
    arrival_s = workload.arrival_ns[fits].astype(np.float64) / NS_PER_S
    own_per_s = (len(arrival_s) - 1) / float(np.ptp(arrival_s))
    at_s = arrivals_at(
        arrival_s * own_per_s / full_load_per_s(asked.record, prompts, outputs), _loads(asked, name)
    )
    columns = (prompts.tolist(), outputs.tolist())
    with whole_file("out", path) as half, half.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["arrival_s", "prompt_tokens", "output_tokens"])
        rows.writerows([f"{at:.6f}", *lengths] for at, *lengths in zip(at_s, *columns, strict=False))


def _requests(asked: ServerFidelity) -> Workload:
    """Return the requests of the trace, at the trace's own rate."""
    config = asked.config(
        "http.servers=[http://127.0.0.1:1]",
        *words_of_engine(asked.record),
        f"engine.max_model_len={_longest(asked)}",
        f"trace.limit={_MOST_REQUESTS}",
        workers=1,
    )
    return prepare(config).workload


def full_load_per_s(record: Mapping[str, Any], prompts: np.ndarray, outputs: np.ndarray) -> float:
    """Return how many of these requests a second one server keeps up with, by its calibration.

    Each request costs the step of its prompt alone, and for each token its share of a step that decodes as
    many requests as the server batches, at the mean context of these requests. `trace.utilization` would take
    a context of 1,024 tokens for each, which is several times that of short requests.
    """
    steps, most = record["steps"], int(record["max_num_seqs"])
    alone = sorted(
        (step["prefill_tokens"], step["median_s"]) for step in steps if step["prefill_sequences"] == 1
    )
    decodes = sorted(
        (step["context_tokens"], step["median_s"]) for step in steps if step["decode_sequences"] == most
    )
    context = most * float((prompts + outputs / 2).mean())
    prompt_s = float(np.interp(prompts, *np.array(alone).T).mean())
    step_s = float(np.interp(context, *np.array(decodes).T))
    return 1 / (prompt_s + float(outputs.mean()) * step_s / most)


def _longest(asked: ServerFidelity) -> int:
    """Return the tokens of the longest request that the server takes and that the profile answers for."""
    return min(int(asked.record["server"]["max_model_len"]), int(asked.record["max_num_batched_tokens"]))


def _loads(asked: ServerFidelity, name: str) -> Sequence[tuple[float, float]]:
    """Return (seconds, load) in order."""
    if name == SCALING:
        burst_s = asked.start_s + AFTER_START_S / asked.shorter
        return ((burst_s, BURST_LOAD), (QUIET_S / min(2.0, asked.shorter), QUIET_LOAD))
    return ((STATIC_S / asked.shorter, LOADS[name]),)


def arrivals_at(at_full_load_s: np.ndarray, loads: Sequence[tuple[float, float]]) -> np.ndarray:
    """Return the arrivals that lie within these (seconds, load), of arrivals at a load of 1."""
    ends_s, work_s = np.zeros(1), np.zeros(1)
    for seconds, load in loads:
        ends_s = np.append(ends_s, ends_s[-1] + seconds)
        work_s = np.append(work_s, work_s[-1] + seconds * load)
    from_start = at_full_load_s - at_full_load_s[0]
    at_s: np.ndarray = np.interp(from_start[from_start <= work_s[-1]], work_s, ends_s)
    return at_s


def _round(asked: ServerFidelity, number: int) -> None:
    """Make one repeat of every case that is missing: repeats of a case are as far apart as cases are.

    The speed of a shared machine drifts within the hour. The static cases share a server, which is started
    for each round.
    """
    missing = [name for name in asked.cases if not has_summary(asked.out / name / f"real-{number}")]
    static = [name for name in missing if name != SCALING]
    if static:
        config = asked.config(workers=1)
        rules = start_rules(config, os.environ.get(API_KEY))
        print_progress(f"a server is started for round {number} of {asked.repeats}")
        with ServerLauncher(rules, 1, asked.out / "static" / f"servers-{number}") as launcher:
            server = start_first(launcher)
            _check_same(asked, server.facts())
            address = server.address
            for name in static:
                _run(asked, name, number, f"http.servers=[{address}]", "system=vllm", workers=1)
    if SCALING in missing:
        target = max(1, round(TARGET * asked.record["max_num_seqs"]))
        scaler = [f"{key}={text}" for key, text in SCALER.items()]
        _run(asked, SCALING, number, *scaler, f"system.scaler.target={target}", workers=2)


def _check_same(asked: ServerFidelity, facts: Mapping[str, Any]) -> None:
    """Refuse a server that is another one than was calibrated. Raises UserError."""
    for name, before in asked.record["server"].items():
        if name != "address" and facts.get(name) != before:
            raise UserError(
                f"{START} starts a server whose {name} is {facts.get(name)}, and {asked.profile} is of one "
                f"with {before}: start the same one, or write another out="
            )


def _run(asked: ServerFidelity, name: str, number: int, *words: str, workers: int) -> None:
    trace = asked.out / f"{name}.csv"
    with trace.open(encoding="utf-8") as file:
        requests = sum(1 for _ in file) - 1
    of_trace = ["trace=file", f"trace.path={trace}", "trace.tokens_scale=1", f"trace.limit={requests}"]
    folder = f"{name}/real-{number}"
    config = asked.config(
        *words, *of_trace, *words_of_engine(asked.record), "journal=true", workers=workers, out=folder
    )
    quiet = wait_until_quiet(0.0 if asked.quick else MOST_WAIT_S)
    print_progress(f"{name}: real run {number} of {asked.repeats}, {requests} requests")
    (asked.out / name).mkdir(exist_ok=True)
    write_whole("out", quiet_file(Path(config.out)), json.dumps(quiet) + "\n")
    real_folder(config)


def _case(asked: ServerFidelity, name: str) -> dict[str, Any]:
    """Return the real runs and the simulated run of a case, and their agreement."""
    reals, twin = reals_of(asked.out, name, asked.repeats), asked.out / name / "twin"
    words = words_of_profile(str(asked.profile), asked.record)
    words += [f"system.instances.start_total_s={asked.start_s:.6g}"] if name == SCALING else []
    words += ["driver.carries_out=http", f"series.period_s={_SERIES_S}", f"out={twin}"]
    if not has_summary(twin):
        given = [
            word for word in words if not word.startswith(("engine=", "engine.version=", "engine.max_num"))
        ]
        simulated_folder(load_config([f"config={reals[0]}", *given], "simulate"))
    summaries = [summary_of(folder) for folder in reals]
    real = [summary["real"] for summary in summaries]
    return {
        "loads": [list(part) for part in _loads(asked, name)],
        "agreement": agreement_data(twin, reals),
        "requests": {
            key: [one["requests"].get(key) for one in (summary_of(twin), *summaries)]
            for key in ("finished", "failed")
        },
        "tokens": {
            "checked": sum(one["tokens_checked"] for one in real),
            "different": sum(one["tokens_different"] for one in real),
        },
        "starts": [_second_start(one) for one in real] if name == SCALING else [],
        "scaling": [
            [[event["act"], event["t_s"]] for event in one["scale_events"]]
            for one in (summary_of(twin), *summaries)
        ] if name == SCALING else [],
        "quiet": [json.loads(quiet_file(folder).read_text(encoding="utf-8")) for folder in reals],
    }  # fmt: skip


def _second_start(real: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the phases of the first start that the scaler asked for."""
    later = [start for start in real["starts"]["servers"] if start["server"] != 0]
    return later[0] if later else None
