"""Measurements of ``realexec fidelity``: a profile, each case's real and simulated runs, their agreement."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from servetwin.assemble.hosted import run_shape
from servetwin.cli.compare_repeats import agreement_data
from servetwin.cli.fidelity_folder import (
    codes_of,
    has_summary,
    print_progress,
    quiet_file,
    reals_of,
    summary_of,
    without_host,
)
from servetwin.compare.repeated import AGREES
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.measured_links import CALIBRATION
from servetwin.config.config import RunConfig
from servetwin.config.whole_file import write_whole
from servetwin.run import calibrated
from servetwin.run.quiet_gate import MOST_WAIT_S, wait_until_quiet
from servetwin.run.real_folder import real_folder, simulated_folder
from servetwin.run.simulate import prepare
from serving.vocabulary.errors import UserError

# Scales the scaling case of ``realexec fidelity`` to the machine: when it loads, and how long a load takes.
# BlitzScale's own bounds are for GPUs whose prompts take tenths of a second. On another machine a short run
# never reaches them, or ends before the load monitor runs, and a small model loads within a step. So the
# bounds are derived from the profile: an instance is loaded when as many prompts wait as one instance runs
# at a time, and the load takes as long as these prompts. That is about BlitzScale's own proportion: it
# checks every 0.1 s, loads from 0.7 s of waiting prompts on, and Llama-3-8B takes 0.63 s over 200 Gb/s.

BOUNDS: Final = "system.scaler.prefill"
PERIOD: Final = "system.instances.monitor_period_ms"
LINK: Final = "cluster.nic_gbps"
# The load monitor's lower bound (0.5 s) and its period (0.1 s), relative to its upper bound (0.7 s).
_LOWER: Final = 5 / 7
_LOOKS: Final = 1 / 7
_BITS_PER_GBIT: Final = 1e9


def scaling_keys(config: RunConfig) -> dict[str, str]:
    """Return the keys to add to the case's arguments, which contain a profile and measured links.

    A model that loads more slowly over the measured link loads at the link's rate.
    """
    prepared = prepare(config)
    prompts_tokens = config.engine.max_num_seqs * float(prepared.workload.prompt_tokens.mean())
    upper_s = prompts_tokens / prepared.estimates.models[0].prefill_tokens_per_s
    link_gbps = run_shape(config).weight_bytes * 8 / upper_s / _BITS_PER_GBIT
    measured_gbps = config.cluster.nic_gbps
    if measured_gbps is not None:
        link_gbps = min(link_gbps, measured_gbps)
    return {
        BOUNDS: f"[{_LOWER * upper_s:.4g},{upper_s:.4g}]",
        PERIOD: f"{_LOOKS * upper_s * 1000:.4g}",
        LINK: f"{link_gbps:.4g}",
    }


PROFILE: Final = "engine.profile"
# All constants that verdicts depend on are here and in servetwin/compare/repeated.py; they were written
# before the first run that was judged. A command with fewer repeats or requests claims nothing.
REPEATS: Final = 5  # one of them may be disturbed
# With 48 requests a run lasted some seconds, and one pause of the machine moved its mean: real means of the
# light case, which has no queue, were 26 % apart. Over 400 requests pauses average out.
REQUESTS: Final = 400
BASE: Final = {
    "cluster": "local", "workers": "2", "model": "tiny_llama", "trace": "azure_conv_like",
    "trace.limit": str(REQUESTS), "trace.tokens_scale": "0.1", "series.period_s": "0.1",
}  # fmt: skip
# Loads below, nearer to and above the capacity of the initial instances: the load regimes of COMPARE (docs).
# The wait below capacity grows as 1 / (1 - load), and that of a queue without end as 1 - 1 / load. A machine
# that is 1 % slower makes them longer by 1 / (1 - load) and by 1 / (1 - 1 / load) %: at 0.8 and 1.3 by 5 and
# 4.3 %, so repeats that differed by 4 % in speed decided nothing; at 0.6 and 2.5 by 2.5 and 1.7 %.
LOADS: Final = {"light": 0.3, "knee": 0.6, "overload": 2.5}
_MIGRATES: Final = {
    "system": "vllm", "system/migration": "least_loaded", "system/dispatch": "round_robin",
    "migration.period_ms": "50", "trace.utilization": f"{LOADS['knee']:g}",
}  # fmt: skip
# Three times what one instance keeps up with is too much for two as well: like a load of 2, after which two
# instances would just keep up, it scales at once, and unlike it the queue is not one that chance decides.
_SCALES: Final = {
    "system": "blitzscale", "system.instances.split": "false", "cluster.links": "measured",
    "trace.utilization": "3",
}  # fmt: skip
SCALING: Final = "scaling"
CASES: Final[dict[str, Mapping[str, str]]] = {
    **{name: {"system": "vllm", "trace.utilization": f"{load:g}"} for name, load in LOADS.items()},
    SCALING: _SCALES,
    "migrating": _MIGRATES,
}
# Keys that the cases set themselves.
_FIXED: Final = frozenset(key for case in CASES.values() for key in case) | {
    "journal", "config", "world", BOUNDS, PERIOD, LINK,
}  # fmt: skip
# Keys that step times depend on; a calibration reads these.
_OF_STEPS: Final = ("workers", "model", "device", "seed", "engine", "cluster")
_MOVED: Final = ("loads", "live_passes", "migrations", "handoffs", "loaded_bytes", "kv_bytes", "transport")


@dataclass(frozen=True, slots=True)
class FidelityOptions:
    """``cases``: names of ``CASES``. ``keys``: keys of `realexec run` that apply to all cases.

    They include ``engine.profile`` if a profile exists already.
    """

    out: Path
    repeats: int
    quick: bool
    cases: tuple[str, ...]
    keys: Mapping[str, str]


def fixed_settings() -> dict[str, Any]:
    """Return the constants and the machine, under which results may be put together."""
    machine = calibrated.machine()
    return {
        "constants": [BASE, {name: dict(case) for name, case in CASES.items()}],
        "machine": [machine["processor"], machine["cores"]],
    }


def check(options: FidelityOptions) -> None:
    """Raise UserError for wrong arguments, before anything is measured or written."""
    for key in options.keys:
        if key in _FIXED:
            raise UserError(f"{key}={options.keys[key]} is said by each case: leave it out")
    if unknown := [name for name in options.cases if name not in CASES]:
        raise UserError(f"there is no case {unknown[0]!r}: write cases= with some of {', '.join(CASES)}")
    for case in options.cases:
        load_config(_words(options, case, None), "realexec")


def measured(options: FidelityOptions) -> dict[str, Any]:
    """Return the content of fidelity.json."""
    profile = _profile(options)
    record = json.loads((profile / CALIBRATION).read_text(encoding="utf-8"))
    _run(options, profile)
    cases = {name: _case(options, name, profile) for name in options.cases}
    return {
        "format": "servetwin-fidelity", "schema": 1,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "code": codes_of(options.out, cases, options.repeats),
        "machine": without_host(calibrated.machine()),
        "keys": {**BASE, **options.keys, PROFILE: profile.name}, "repeats": options.repeats,
        "cut_down": options.repeats < REPEATS or _requests(options) < REQUESTS,
        "profile": _of_profile(record), "rates": _rates(record, options),
        "cases": cases, "holds": holds(cases),
    }  # fmt: skip


def _requests(options: FidelityOptions) -> int:
    """Return how many requests a run has at most; a trace without a limit is as long as it is."""
    text = options.keys.get("trace.limit", str(REQUESTS))
    return int(text) if text.isdecimal() else REQUESTS


def holds(cases: Mapping[str, Any]) -> dict[str, float | None]:
    """Map metric to the highest load up to which all static cases agree and none is refused, or None."""
    ends: dict[str, float | None] = {}
    static = {name: load for name, load in LOADS.items() if name in cases}
    for metric in {metric: 0 for name in static for metric in cases[name]["agreement"]["timing"]}:
        ends[metric] = None
        for name, load in static.items():
            row = cases[name]["agreement"]["timing"].get(metric, {})
            if not row.get("decides") or row["verdict"] != AGREES:
                break
            ends[metric] = load
    return ends


def words_of(options: FidelityOptions, case: str, profile: Path) -> tuple[list[str], dict[str, str]]:
    """Return the arguments of a case's real run, and which of them the case sets."""
    words, keys = _words(options, case, profile), dict(CASES[case])
    if case == SCALING:
        scaling = scaling_keys(load_config(words, "realexec"))
        keys |= scaling
        words += [f"{key}={text}" for key, text in scaling.items()]
    return words, keys


def _words(options: FidelityOptions, case: str, profile: Path | None) -> list[str]:
    keys = {**BASE, **options.keys, **CASES[case]}
    keys |= {"journal": "true", "out": str(options.out / case / "real")}
    if profile is None and PROFILE not in options.keys:  # as if it existed: loads and links depend on it
        keys = {key: text for key, text in keys.items() if key not in ("trace.utilization", "cluster.links")}
    elif profile is not None:
        keys[PROFILE] = str(profile)
    return [f"{key}={text}" for key, text in keys.items()]


def _profile(options: FidelityOptions) -> Path:
    """Return the given profile, or measure one now; an interrupted calibration is resumed."""
    if PROFILE in options.keys:
        folder = Path(options.keys[PROFILE]).expanduser().absolute()
        if not (folder / CALIBRATION).is_file():
            raise UserError(
                f"{PROFILE}={folder} has no {CALIBRATION}: write a folder that realexec calibrate made"
            )
        return folder
    folder = options.out / "profile"
    if not (folder / CALIBRATION).is_file():
        keys = {**BASE, **options.keys}
        words = [f"{key}={text}" for key, text in keys.items() if key.split(".")[0] in _OF_STEPS]
        repeats = calibrated.QUICK_REPEATS if options.quick else calibrated.REPEATS
        print_progress("profile: steps, links and sends are measured")
        calibrated.calibrate(load_config([*words, f"out={folder}"], "realexec"), options.quick, repeats)
    return folder


def _run(options: FidelityOptions, profile: Path) -> None:
    """Make the missing real runs, repeat by repeat and not case by case.

    The speed of a shared machine drifts within the hour. In this order the repeats of one case are as far
    apart in time as different cases are.
    """
    for number in range(options.repeats):
        for name in options.cases:
            folder = reals_of(options.out, name, options.repeats)[number]
            if not has_summary(folder):
                words, _ = words_of(options, name, profile)
                quiet = wait_until_quiet(0.0 if options.quick else MOST_WAIT_S)
                print_progress(f"{name}: real run {number + 1} of {options.repeats}")
                folder.parent.mkdir(exist_ok=True)
                write_whole("out", quiet_file(folder), json.dumps(quiet) + "\n")
                real_folder(load_config(words, "realexec"), str(folder))


def _case(options: FidelityOptions, name: str, profile: Path) -> dict[str, Any]:
    """Return the real runs and the simulated run of a case, and their agreement."""
    _, keys = words_of(options, name, profile)
    reals = reals_of(options.out, name, options.repeats)
    twin = options.out / name / "twin"
    if not has_summary(twin):
        simulated_folder(load_config([f"config={reals[0]}", f"out={twin}"], "simulate"))
    summaries = [summary_of(folder) for folder in reals]
    data = agreement_data(twin, reals)
    runs = [summary["real"] for summary in summaries]
    return {
        "keys": keys, "agreement": data,
        "requests": {
            key: [summary["requests"].get(key) for summary in (summary_of(twin), *summaries)]
            for key in ("finished", "failed")
        },
        "tokens": {
            "checked": sum(run["tokens_checked"] for run in runs),
            "different": sum(run["tokens_different"] for run in runs),
        },
        "moved": {key: [run[key] for run in runs] for key in _MOVED},
        "pinned": [run["pinned"] for run in runs],
        "quiet": [json.loads(quiet_file(folder).read_text(encoding="utf-8")) for folder in reals],
    }  # fmt: skip


def _rates(record: Mapping[str, Any], options: FidelityOptions) -> dict[str, Any]:
    """Return the bytes/s of the machine's memory, of its disk, and of each transport of the workers."""
    from realexec.calibration.raw import raw_rates
    from realexec.probe.memory import disk

    device = options.keys.get("device", "cpu")
    raw: dict[str, float | None] = dict(raw_rates(5, device))
    raw["disk past the page cache"] = disk(options.out)["read_bytes_per_s"]
    ways = {**{f"link by {name}": link for name, link in record["links"].items()}, **record["parameters"]}
    return {"raw": raw, "ways": {name: way.get("median_bytes_per_s") for name, way in ways.items()}}


def _of_profile(record: Mapping[str, Any]) -> dict[str, Any]:
    quiet = record["quiet"]
    return {
        "noisy": list(quiet["noisy"]), "wall_over_cpu": quiet["wall_over_cpu"], "date": record["date"],
        "workers_busy": record["workers_busy"], "steps": len(record["steps"]), "took_s": record["took_s"],
        "code": record["code"],
    }  # fmt: skip
