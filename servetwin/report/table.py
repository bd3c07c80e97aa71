"""The main numbers of one run as a terminal table."""

from collections.abc import Mapping
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final

from servetwin.report.cut_outputs import cut_at_cap
from servetwin.report.number_text import count, duration, is_known, number, section, share, whole
from servetwin.report.range_text import (
    FACTS,
    ends_of,
    fact_range,
    has_range,
    near_saturation,
    range_head,
    range_line,
    range_text,
)
from servetwin.report.stages import stage_tables
from servetwin.report.starts import start_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STATISTICS: Final = ("mean", "p50", "p90", "p95", "p99", "max")
LATENCIES: Final = (("ttft_ms", "TTFT"), ("tpot_ms", "TPOT"), ("itl_ms", "ITL"), ("e2e_ms", "E2E"))
_LONGEST_LINE: Final = 150
_MOST_FAULTS: Final = 10
OBSTACLES: Final = {  # descriptions of those in serving.protocols.scaling
    "no_gpu": "no GPUs were free",
    "no_copy": "GPUs were free, no copy of the parameters was found to load from",
    "no_path": "GPUs were free, no path of links led from a copy of the parameters to them",
}


def classes_of(summary: Mapping[str, Any], latency: str) -> list[tuple[str, list[str]]]:
    """Return rows of a latency table by statistic: one per priority, none if all requests have the same."""
    classes = summary.get("priorities")
    return [
        (
            f"priority {priority['priority']}",
            [duration(section(priority, latency).get(name)) for name in STATISTICS],
        )
        for priority in (classes if isinstance(classes, list) else ())
        if latency in priority
    ]


def lost(summary: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return (outcome, reason, count) of requests without an answer, most frequent first."""
    rows: list[tuple[str, str, str]] = []
    rejected = section(summary, "rejected_reasons")
    dropped = section(section(summary, "trace"), "dropped")
    failed = section(summary, "failed_reasons")
    timeouts = section(summary, "client_timeouts")
    given_up = {f"no last token within {number(timeouts.get('timeout_s'))} s": timeouts.get("given_up", 0)}
    for outcome, reasons in (
        ("rejected", rejected),
        ("failed", failed),
        ("given up by its client", given_up),
        ("dropped from the trace", dropped),
    ):
        ordered = sorted(reasons.items(), key=lambda item: (-item[1], str(item[0])))
        rows += [(outcome, str(reason), count(times)) for reason, times in ordered if times]
    return rows


def fault_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (time and fault, consequence) of every fault of a simulated run."""
    rows: list[tuple[str, str]] = []
    faults = summary.get("faults")
    for fault in faults if isinstance(faults, list) else ():
        when = f"{fault['at_s']:.3f} s: {fault['what']} {fault['which']}".rstrip()
        if fault["nothing"]:
            rows.append((when, f"nothing was lost: {fault['nothing']}"))
            continue
        lost = fault["replicas"]
        with_it = f"lost, with {count(len(lost))} replica{'s' if len(lost) != 1 else ''}" if lost else "lost"
        after_s = fault["recovered_s"]
        what = "it worked" if fault["what"] == "scheduler" else "as many served"
        again = "" if after_s is None else f"; {what} again after {after_s:.3f} s"
        rows.append((when, with_it + again))
    return rows


def step_time_source(summary: Mapping[str, Any]) -> str:
    """Return the run's step-time model and its source."""
    step_time = section(summary, "step_time")
    kind, source = str(step_time.get("kind") or ""), str(step_time.get("source") or "unknown")
    return source if not kind or source.startswith(kind) else f"{kind}: {source}"


def step_time_error(summary: Mapping[str, Any]) -> str:
    """Return the possible error of the step times."""
    error = str(section(summary, "step_time").get("error_band") or "unknown")
    return f"unknown, the profile was forced (else {error})" if forced(summary) else error


def step_time_labels(summary: Mapping[str, Any]) -> list[str]:
    """Return the parts of a step that are rough, or measured on another engine than the imitated one."""
    return [str(label) for label in section(summary, "step_time").get("labels") or ()]


def forced(summary: Mapping[str, Any]) -> list[str]:
    """Return why the run's profile would have been refused."""
    profile = section(summary, "step_time").get("profile") or {}
    return [str(reason) for reason in profile.get("forced") or ()]


def facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return name and value of the numbers that are not latency percentiles."""
    requests, slo = section(summary, "requests"), section(summary, "slo")
    throughput, sim = section(summary, "throughput"), section(summary, "sim")
    real = section(summary, "real")
    instances = section(summary, "instances")
    gpu_seconds = summary.get("gpu_seconds")
    gpu_hours = gpu_seconds / 3600 if gpu_seconds is not None and is_known(gpu_seconds) else None
    return [
        ("finished", f"{count(requests.get('finished'))} of {count(requests.get('arrived'))}"),
        *_sent(section(summary, "clients")),
        *_given_up(section(summary, "client_timeouts")),
        *_warmup(section(summary, "warmup")),
        ("throughput", f"{number(throughput.get('req_per_s'))} req/s"),
        ("output tokens", f"{number(throughput.get('output_tokens_per_s'))} tokens/s"),
        ("SLO attainment", share(slo.get("attainment"))),
        ("TTFT attainment", share(slo.get("ttft_attainment"))),
        ("TPOT attainment", share(slo.get("tpot_attainment"))),
        ("goodput", f"{number(slo.get('goodput_req_per_s'))} req/s"),
        ("instances mean/max", f"{number(whole(instances.get('mean')))} / {number(instances.get('max'))}"),
        ("GPU time", f"{number(gpu_hours)} GPU-hours"),
        *_energy(section(summary, "energy")),
        *_use(summary),
        ("preemptions", count(summary.get("preemptions"))),
        *_group_facts(section(summary, "data_parallel")),
        *_pipeline_facts(section(summary, "pipeline_parallel")),
        *_prefix_hits(section(summary, "prefix_cache")),
        *_loads(section(summary, "loads")),
        *_control(section(summary, "control")),
        *live_facts(section(summary, "live")),
        *_migrations(section(summary, "migrations")),
        *(_cost_of_workers(real) if real else _cost_of_simulation(sim)),
    ]


def _given_up(timeouts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what became of clients that wait only so long; empty if they wait for ever."""
    if not timeouts:
        return []
    times, at_last = count(timeouts.get("time_outs")), count(timeouts.get("given_up"))
    again, served = count(timeouts.get("retries")), count(timeouts.get("served_after_retries"))
    return [
        ("clients gave up", f"{times} times, {at_last} at last"),
        ("sent again", f"{again}, {served} served"),
        ("tokens computed in vain", count(timeouts.get("wasted_tokens"))),
    ]


def _sent(clients: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the sending rate of closed-loop clients; empty for a trace's own times."""
    if not clients:
        return []
    rate, many = number(clients["sent_req_per_s"]), count(clients["count"])
    return [("sent", f"{rate} req/s by {many} clients")]


def _warmup(warmup: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the warm-up requests; empty for a run without."""
    if not warmup:
        return []
    return [
        ("warm-up", f"{count(warmup['requests'])} requests in {number(warmup['seconds'])} s, not counted")
    ]


def _energy(energy: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not energy:
        return []
    return [("GPU energy", f"{number(energy['gpu_kwh'])} kWh, {number(energy['gpu_mean_w'])} W mean")]


def _use(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return GPU load (if known) and the share of time in which steps ran."""
    load, busy = summary.get("gpu_load_share"), summary.get("gpu_busy_share")
    served = [("GPU load", share(load))] if is_known(load) else []
    return [*served, ("GPU busy", share(busy))]


def _group_facts(groups: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what data-parallel ranks lose by stepping together; empty without groups."""
    if not groups:
        return []
    waiting = share(groups.get("waiting_share"))
    return [("dummy steps", share(groups.get("dummy_share"))), ("waits for slowest", waiting)]


def _pipeline_facts(pipelines: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return how long stages idled while there was work; empty if replicas are whole."""
    return [("bubble", share(pipelines.get("bubble_share")))] if pipelines else []


def _prefix_hits(cache: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the tokens found in the prefix cache; empty without prefix caching."""
    if not cache:
        return []
    return [
        ("prefix cache hits", share(cache.get("hit_rate"))),
        ("hits at most", share(cache.get("hit_rate_at_most"))),
        ("prompt tokens saved", count(cache.get("hit_tokens"))),
        ("blocks evicted", count(cache.get("evicted_blocks"))),
    ]


def _loads(loads: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the number and duration of parameter loads; empty without loads."""
    seconds = loads.get("seconds")
    if not seconds:
        return []
    mean, most = duration(1000 * seconds["mean"]), duration(1000 * seconds["max"])
    return [("parameter loads", f"{count(loads.get('count'))}, mean {mean}"), ("slowest load", most)]


def _control(control: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what scaling cost; empty for a system that does not scale."""
    if not control:
        return []
    lacked, spare = number(control["under_provisioned_s"]), number(control["over_provisioned_s"])
    return [
        ("starts, stops", f"{count(control['starts'])}, {count(control['stops'])}"),
        ("reversals", count(control["reversals"])),
        ("too few, many GPUs", f"{lacked} s, {spare} s"),
        ("GPU time over bound", f"{number(control['over_bound'])} times"),
    ]


def flapping(summary: Mapping[str, Any]) -> list[str]:
    """Return a line if a scaler turned back more than twice in ten minutes of constant load."""
    times = section(summary, "control").get("constant_load_reversals") or 0
    if times <= 2:
        return []
    return [f"the scaler turned back {count(times)} times in ten minutes of constant load: it flaps"]


def shortages(summary: Mapping[str, Any]) -> list[str]:
    """Return one line per obstacle that prevented starts of instances, most frequent first."""
    by_count = sorted(
        ((times, key) for key, times in section(summary, "shortages").items() if times), reverse=True
    )
    return [
        f"instances not started {count(times)} times: {OBSTACLES.get(key, key)}" for times, key in by_count
    ]


def _migrations(migrations: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return how many running requests migrated and how long they were in no batch; empty without any."""
    if not migrations:
        return []
    aborted = sum(section(migrations, "aborted").values())
    down = section(migrations, "down_ms")
    line = f"{count(migrations.get('committed'))}, {count(aborted)} aborted"
    stopped = f"{duration(down.get('p50'))} / {duration(down.get('p99'))}"
    return [("migrations", line), ("down time P50/P99", stopped)]


def live_facts(live: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return requests and passes of instances that were still loading; empty without live scaling."""
    if not live:
        return []
    rows = [("served while loading", f"{count(live['requests'])} requests, {count(live['passes'])} passes")]
    plans = {key: live[f"plans_{key}"] for key in ("used", "refused", "late")}
    if any(plans.values()):
        rows.append(
            ("live scheduling plans", ", ".join(f"{count(many)} {key}" for key, many in plans.items()))
        )
    return rows


def _cost_of_simulation(sim: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("run took", f"{number(sim.get('wall_s'))} s ({number(sim.get('process_cpu_s'))} s CPU)"),
        ("speed", f"{count(sim.get('requests_per_cpu_s'))} req/CPU-s"),
        ("core", str(sim.get("core", "unknown"))),
    ]


def _cost_of_workers(real: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("run took", f"{number(real.get('wall_s'))} s"),
        ("workers", f"{count(real.get('workers'))}, ready in {number(real.get('start_s'))} s"),
    ]


def print_summary(summary: Mapping[str, Any], console: "Console | None" = None, ranges: bool = False) -> None:
    """Print the main numbers of ``summary`` (the content of summary.json), at most 80 columns wide.

    A latency has one line with the range of its P99; with ``ranges`` both ends of every statistic.
    """
    from rich.console import Console
    from rich.text import Text

    from nativecore import OUT_OF_DATE
    from servetwin.config.policy.watch import slow_policies

    console = console or Console()
    if head := (range_head(summary) if ranges else range_line(summary)):
        console.print(Text(f"  {head}", style="bold"))
    if has_range(summary) and not ranges:
        near = f"{told}; " if (told := near_saturation(summary)) else ""
        console.print(Text(f"  {near}what the ranges rest on: report.html, or --ranges", style="dim"))
    if several := summary.get("parallelism"):
        console.print(Text(f"  {several}", style="dim"))
    if start := start_text(section(summary, "starts")):
        console.print(Text(f"  {start}", style="dim"))
    console.print(_latency_table(summary, ranges))
    if has_range(summary):
        console.print(_range_table(summary))
    console.print(_fact_table(summary))
    for stages in stage_tables(summary):
        console.print(stages)
    run = section(summary, "sim") or section(summary, "real")
    if slow := slow_policies(section(run, "policies")):
        console.print(Text(f"  {slow}", style="yellow"))
    if (why := run.get("why_interpreted") or "").endswith(OUT_OF_DATE):
        console.print(Text(f"  the compiled core was not used, {why}: run make fast", style="yellow"))
    for outcome, reason, times in lost(summary):
        console.print(Text(f"  {times} {outcome}: {reason}", style="yellow"))
    for when, consequence in fault_rows(summary)[:_MOST_FAULTS]:
        console.print(Text(f"  {when} {consequence}", style="yellow"))
    if (more := len(fault_rows(summary)) - _MOST_FAULTS) > 0:
        console.print(Text(f"  and {count(more)} more faults (see report)", style="yellow"))
    for line in (*shortages(summary), *flapping(summary)):
        console.print(Text(f"  {line}", style="yellow"))
    if cut := cut_at_cap(section(summary, "trace")):
        console.print(Text(f"  {count(cut)} outputs longer than max_new_tokens, cut there", style="yellow"))
    if labels := section(summary, "trace").get("labels"):
        console.print(Text(f"  trace: {'; '.join(str(label) for label in labels)}", style="yellow"))
    for label in step_time_labels(summary):
        console.print(Text(f"  step time: {label}", style="yellow"))
    for reason in forced(summary):
        console.print(Text(f"  FORCED: the profile does not fit the run: {reason}", style="bold red"))
    if section(summary, "step_time") and not section(summary, "real"):
        kind = section(summary, "step_time").get("kind") or "unknown model"
        text = f"step time: {kind}, error {step_time_error(summary)}"
        line = shorten(text, _LONGEST_LINE, placeholder=" ... (see report)")
        console.print(Text(f"  {line}", style="dim"))


def _latency_table(summary: Mapping[str, Any], ranges: bool) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("latency", style="bold")
    folded = has_range(summary) and not ranges
    shown = STATISTICS[:-1] if folded else STATISTICS  # the range takes the place of the maximum
    for name in (*shown, *(["range of p99"] if folded else [])):
        table.add_column(name, justify="right")
    for key, label in LATENCIES:
        values = section(summary, key)
        between = [range_text(summary, f"{key}.p99", duration)] if folded else []
        table.add_row(label, *(duration(values.get(name)) for name in shown), *between)
        ends = [] if folded else ends_of(summary, key, STATISTICS)
        for name, cells in [*classes_of(summary, key), *ends]:
            table.add_row(f" {name}", *cells[: len(shown)], style="dim")
    return table


def _range_table(summary: Mapping[str, Any]) -> "Table":
    """Return throughputs and attainments with the lowest and highest of the run and its two ends."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in ("", "as modelled", "range, not an interval"):
        table.add_column(name, justify="right" if name else "left")
    for name, value in facts(summary):
        if name in FACTS:
            table.add_row(name, value, fact_range(summary, name))
    return table


def _fact_table(summary: Mapping[str, Any]) -> "Table":
    """Return two pairs of columns, so that everything fits on one screen."""
    from rich.table import Table

    ranged = FACTS if has_range(summary) else ()
    pairs = [pair for pair in facts(summary) if pair[0] not in ranged]
    half = (len(pairs) + 1) // 2
    table = Table.grid(padding=(0, 2))
    for style in ("dim", "bold", "dim", "bold"):
        table.add_column(style=style)
    for left, right in zip(pairs[:half], [*pairs[half:], ("", "")], strict=False):
        table.add_row(f"  {left[0]}", left[1], *right)
    return table
