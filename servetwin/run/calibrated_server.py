"""``realexec calibrate http://HOST:PORT``: measures a stock server, for the simulation of it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hwmodels.importers.step_profile_file import Row, write_step_profile
from hwmodels.profiles.profile import NOISE_LABEL, Stamp
from realexec.calibration.done_log import DoneLog
from realexec.calibration.quiet import Spread, differing_repeats, spread_of
from realexec.http.calibration import FrontEndFit, ServerPlan, front_end_fit, measure, server_plan
from realexec.http.driver import probe_all
from realexec.http.engine_times import SOURCE
from realexec.http.probe import Server
from servetwin.assemble.hardware import precision_of
from servetwin.assemble.hosted import hosted_models
from servetwin.config.compose.measured_links import CALIBRATION
from servetwin.config.config import FLOAT32, RunConfig
from servetwin.config.http_config import servers_of
from servetwin.config.version import code_version
from servetwin.run.calibrated import LICENCE, machine, target_of
from servetwin.run.http_run import API_KEY
from serving.vocabulary.errors import UserError

FRONT_END: Final = "front_end.yaml"
Entries = Mapping[str, Mapping[str, Any]]


def calibrate_server(
    config: RunConfig,
    quick: bool,
    repeats: int,
    *,
    on_progress: Callable[[int, int], None] | None = None,
    on_resumed: Callable[[int], None] | None = None,
    asynchronous: bool | None = None,
) -> dict[str, Any]:
    """Measure, write the profile into ``config.out``, and return what calibration.json holds.

    ``asynchronous``: whether the engine schedules a step during the one before it; None: not known.

    A calibration that was stopped resumes, as one of workers does.
    """
    addresses = servers_of(config.http)
    if len(addresses) != 1:
        raise UserError(f"calibrate measures one server, and {len(addresses)} are named: write one of them")
    target = target_of(config)
    (server,) = probe_all(addresses, config.http.model, os.environ.get(API_KEY))
    (model,) = hosted_models(config)
    engine = config.engine
    plan = server_plan(
        server,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        repeats=repeats,
        quick=quick,
    )
    partial, began_s = target.with_name(f".{target.name}.calibrating"), time.monotonic()
    what = {"server": server.facts(), "seed": config.seed, "plan": plan.as_dict(), "code": code_version()}
    with DoneLog(partial, what) as log:
        if log.resumed and on_resumed is not None:
            on_resumed(log.resumed)
        measure(
            server,
            plan,
            log,
            vocabulary=model.shape.vocab,
            seed=config.seed,
            timeout_s=config.http.timeout_s,
            on_progress=on_progress,
        )
        entries = {name: log.entries[name] for name in plan.jobs()}
    steps, front_end = steps_of(entries), front_end_fit(entries, asynchronous)
    if not any(step[3] == engine.max_num_seqs for step in steps):
        raise UserError(
            f"the server at {server.address} never decoded {engine.max_num_seqs} requests at once: write "
            "engine.max_num_seqs=N as it was started with (--max-num-seqs)"
        )
    record = _record(config, server, plan, steps, front_end) | {
        "asynchronous": asynchronous,
        "took_s": time.monotonic() - began_s,
    }
    _write(target, config, server, steps, record)
    shutil.rmtree(partial, ignore_errors=True)
    return record


def imitated(config: RunConfig, kind: str, version: str) -> tuple[str, str]:
    """Software and version of the profile: the server's, or the configuration's if it does not say."""
    if kind == "openai" or not version:
        return config.engine.software, config.engine.version
    return kind, version


Step = tuple[int, int, int, int, int]


def steps_of(entries: Entries) -> dict[Step, Spread]:
    """Seconds of each step over its repeats. A prompt's are the engine's; without counters the client's."""
    found = dict[tuple[str, ...], list[Mapping[str, Any]]]()
    for name, entry in entries.items():
        found.setdefault(tuple(name.partition(" #")[0].split()), []).append(entry)
    steps = dict[Step, Spread]()
    for (kind, first, *more), several in found.items():
        if kind == "prompt":
            counted = all(one["engine_s"] is not None for one in several)
            took_s = [one["engine_s" if counted else "client_s"] for one in several]
            steps[int(first), 1, 0, 0, 0] = spread_of(took_s)
            continue
        if kind == "batch":
            if known := [one["engine_s"] for one in several if one["engine_s"]]:
                steps[int(first) * int(more[0]), int(more[0]), 0, 0, 0] = spread_of(known)
            continue
        timed = [one for one in several if "step_s" in one]
        if not timed:
            continue
        context = round(sum(one["context_tokens"] for one in timed) / len(timed))
        if kind == "mixed":
            both = int(first), 1, 0, int(more[0]), context
            steps[both] = spread_of([one["mixed_s"] for one in timed])
        else:
            steps[0, 0, 0, int(first), context] = spread_of([one["step_s"] for one in timed])
    return steps


def _record(
    config: RunConfig,
    server: Server,
    plan: ServerPlan,
    steps: Mapping[Step, Spread],
    front_end: FrontEndFit | None,
) -> dict[str, Any]:
    names = ("prefill_tokens", "prefill_sequences", "cached_tokens", "decode_sequences", "context_tokens")
    return {
        "format": "servetwin-server-calibration",
        "schema": 1,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "client": machine(),
        "code": code_version(),
        "model": config.model.name,
        "server": server.facts(),
        "plan": plan.as_dict(),
        "max_num_seqs": config.engine.max_num_seqs,
        "max_num_batched_tokens": config.engine.max_num_batched_tokens,
        "noisy": differing_repeats(steps.values()),  # the server's CPU time is not known here
        "prompts_by": SOURCE
        if front_end is not None
        else "the client: the server counts no times of its engine",
        "steps": [
            {**dict(zip(names, step, strict=True)), **spread.as_dict("s")} for step, spread in steps.items()
        ],
        "front_end": None if front_end is None else _front_end_keys(front_end, server),
    }


def _front_end_keys(fit: FrontEndFit, server: Server) -> dict[str, Any]:
    """The keys of ``engine.front_end``. The way out is part of the way in."""
    return {
        "way_in_s": fit.way_in_s,
        "request_s": fit.request_s,
        "prompt_token_s": fit.prompt_token_s,
        "running_s": fit.running_s,
        "error_s": fit.error_s,
        "source": f"measured at {server.dialect.name} {server.version}: client's TTFT less {SOURCE}",
    }


def _write(
    target: Path,
    config: RunConfig,
    server: Server,
    steps: Mapping[Step, Spread],
    record: Mapping[str, Any],
) -> None:
    (model,) = hosted_models(config)
    engine, version = imitated(config, server.dialect.name, server.version)
    text = json.dumps(record, indent=1) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    stamp = Stamp(
        gpu=config.cluster.gpu,
        llm=model.shape.name,
        tp=model.tp,
        engine=engine,
        engine_version=version,
        precision=precision_of(model.shape) if config.model.dtype == FLOAT32 else config.model.dtype,
        source=f"measured at {server.dialect.name} {server.version} over HTTP, {record['date']}",
        licence=LICENCE,
        files=(),
        notes=(
            *(f"{NOISE_LABEL}{cause}" for cause in record["noisy"]),
            f"prompts are timed by {record['prompts_by']}",
            f"{CALIBRATION} has the spread of repeats, sha256 {digest}",
        ),
    )
    beside = {CALIBRATION: text}
    if (keys := record["front_end"]) is not None:
        beside[FRONT_END] = "".join(f"{name}: {json.dumps(value)}\n" for name, value in keys.items())
    if target.exists():
        shutil.rmtree(target)
    rows: Sequence[Row] = [(*step, spread.repeats, spread.median) for step, spread in steps.items()]
    write_step_profile(target, stamp, includes_overhead=True, rows=rows, beside=beside)
