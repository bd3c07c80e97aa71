"""The page of ``realexec fidelity http.start=...``: what agrees, the rows, pictures, starts, the machine."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from servetwin.cli.fidelity_folder import reals_of
from servetwin.cli.fidelity_page import RULE, decisions, disturbed_runs, nothing_claimed, table, two_digits
from servetwin.cli.fidelity_pictures import write_over_time
from servetwin.cli.fidelity_servers import SCALING
from servetwin.compare.repeated import AGREES, DIFFERS, MOST_APART
from servetwin.compare.run_names import what_ran
from servetwin.config.whole_file import whole_file
from servetwin.report.number_text import NOTHING, duration
from servetwin.report.table import LATENCIES

Report = Mapping[str, Any]
_LABELS: Final = dict(LATENCIES)
_GIGA: Final = 1e9
UNDECIDED: Final = "not decided"
_PHASES: Final = ("process_s", "first_log_s", "listens_s", "listed_s", "ready_s")
_MEANT: Final = {"process_s": "process", "first_log_s": "first line in its log", "listens_s": "port open",
                 "listed_s": "model listed", "ready_s": "a request answered"}  # fmt: skip


def name_of_servers(report: Report) -> str:
    """Return such as ``vLLM 0.32.0 over HTTP``."""
    return what_ran({"real": {"servers": [report["server"]]}})


def write_pictures(report: Report, out: Path) -> None:
    """Write a picture and a table over time of each case, and rows.csv."""
    for name in report["cases"]:
        reals = reals_of(out, name, report["repeats"])
        write_over_time(out, name, out / name / "twin", reals, name_of_servers(report))
    with whole_file("out", out / "rows.csv") as half, half.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([ROW, *rows_of(report)])


ROW: Final = ("case", "metric", "requests", "real_mean_ms", "simulated_mean_ms", "error_of_mean", "d_sim",
              "d_repeat", "d_sim_over_d_repeat", "low", "high", "rerun", "real_means_apart", "verdict",
              "disturbed", "with_all_d_sim_over_d_repeat", "with_all_real_means_apart",
              "with_all_verdict")  # fmt: skip


def rows_of(report: Report) -> Iterator[list[Any]]:
    """Return a row per case and metric, in the columns of ``ROW``."""
    for name, case in report["cases"].items():
        agreement = case["agreement"]
        for metric, row in agreement["timing"].items():
            every, mean = row["with_all"], row["real"]["mean"]
            yield [
                name, metric, row["requests"], mean, row["simulated"]["mean"],
                row["simulated"]["mean"] / mean - 1,
                row["d_sim"], row["d_repeat"], row["d_sim_over_d_repeat"], *row["interval"],
                row["unusual_run"], row["real_means_apart"], _verdict(row), agreement["disturbed"] or "",
                every["d_sim_over_d_repeat"], every["real_means_apart"], _verdict(every),
            ]  # fmt: skip


def _verdict(row: Report) -> str:
    return str(row["verdict"]) if row["decides"] else UNDECIDED


def claim(report: Report) -> str:
    """Return the claim as one sentence, or why nothing is claimed."""
    if why := nothing_claimed(report):
        return why
    verdicts = [row[ROW.index("verdict")] for row in rows_of(report)]
    counts = {word: verdicts.count(word) for word in (AGREES, DIFFERS, UNDECIDED)}
    return (
        f"**Of {len(verdicts)} rows {counts[AGREES]} agree (the simulation cannot be told from a rerun), "
        f"{counts[DIFFERS]} differ and {counts[UNDECIDED]} decide nothing.**"
    )


def lines_of(report: Report) -> Iterator[str]:
    """Return lines for a terminal."""
    yield claim(report).replace("*", "")
    for row in rows_of(report):
        case, metric, _, _, _, error, _, _, ratio, low, high, _, apart, verdict, *_ = row
        yield (
            f"{case:8} {_LABELS[metric]:5} error of the mean {error:+.1%}, D_sim/D_repeat {ratio:.2f} "
            f"({low:.2f} to {high:.2f}), real means apart {apart:.0%}: {verdict}"
        )


def as_page(report: Report) -> str:
    """Return Markdown for the content of fidelity.json."""
    name = name_of_servers(report)
    title = report["title"] or f"{name} and its simulation, {report['machine']['cores']} cores"
    lines = [f"# Fidelity: {title}", "", claim(report), "", f"    $ {report['command']}", ""]
    for part in (_rows, disturbed_runs, _pictures, _starts, decisions, _runs, _stamp):
        lines += [*part(report), ""]
    return "\n".join(lines).rstrip() + "\n"


def _rows(report: Report) -> Iterator[str]:
    yield "## Simulated over real"
    yield ""
    yield (
        f"{report['repeats']} real runs of each case, in turns over the cases. Error: simulated over real "
        "mean, less 1; real: the median of the runs' means. D_sim: Kolmogorov-Smirnov distance from the "
        f"simulation to a real run, D_repeat: from one real run to another, medians. {RULE} It decides "
        f"nothing if the means of the real runs are more than {MOST_APART:.0%} apart. `rows.csv` has "
        "these numbers."
    )
    yield ""
    head = ["case", "metric", "requests", "real mean", "simulated", "error", "D_sim / D_repeat", "95 %",
            "a rerun", "real means apart", ""]  # fmt: skip
    cells = []
    for (
        case,
        metric,
        requests,
        real,
        simulated,
        error,
        _,
        _,
        ratio,
        low,
        high,
        rerun,
        apart,
        verdict,
        *_,
    ) in rows_of(report):
        cells.append(
            [case, _LABELS[metric], f"{requests:,}", duration(real), duration(simulated), f"{error:+.1%}",
             two_digits(ratio), f"{low:.2f} to {high:.2f}", two_digits(rerun), f"{apart:.0%}", verdict]
        )  # fmt: skip
    yield from table(head, cells)


def _pictures(report: Report) -> Iterator[str]:
    yield "## Over time"
    yield ""
    yield (
        "Queue and running requests follow from the times of requests, on both sides alike. KV is what "
        "servers report, and what the simulation holds. `CASE-over-time.csv` has the numbers."
    )
    for name in report["cases"]:
        yield ""
        yield f"![{name}: replicas, queue, running requests and KV over time]({name}.svg)"


def _starts(report: Report) -> Iterator[str]:
    yield "## Starts of the second server"
    yield ""
    yield (
        "Seconds since the decision. Measured: before the runs, beside a server with requests; their mean is "
        f"what a start takes in the simulation ({report['start_s']:.1f} s)."
    )
    yield ""
    starts = [(f"measured {at}", one) for at, one in enumerate(report["starts"], 1)]
    case = report["cases"].get(SCALING, {"starts": []})
    starts += [(f"run {at}", one) for at, one in enumerate(case["starts"], 1) if one is not None]
    rows = [[name, *(f"{one[phase]:.1f}" for phase in _PHASES)] for name, one in starts]
    yield from table(["start", *(_MEANT[phase] for phase in _PHASES)], rows)
    if case["starts"]:
        yield ""
        yield from _scaling(report["cases"][SCALING])


def _scaling(case: Report) -> Iterator[str]:
    yield "When the scaler decided, in seconds since the start of the run:"
    yield ""
    acts = list(dict.fromkeys(act for run in case["scaling"] for act, _ in run))
    rows = []
    for name, run in zip(["simulated", *case["agreement"]["real"]], case["scaling"], strict=True):
        times = [", ".join(f"{at_s:.1f}" for act, at_s in run if act == wanted) for wanted in acts]
        rows.append([name, *(text or NOTHING for text in times)])
    yield from table(["run", *acts], rows)


def _runs(report: Report) -> Iterator[str]:
    yield "## Runs"
    yield ""
    head = ["case", "load (share of what a server keeps up with)", "finished: simulated, real", "failed",
            "tokens asked for again", "different", "others' use of the cores before each run"]  # fmt: skip
    rows = []
    for name, case in report["cases"].items():
        loads = ", then ".join(f"{load:g} for {seconds:.0f} s" for seconds, load in case["loads"])
        finished, failed = (", ".join(map(str, case["requests"][key])) for key in ("finished", "failed"))
        busy = ", ".join(
            NOTHING if one["busy_share"] is None else f"{one['busy_share']:.0%}" for one in case["quiet"]
        )
        tokens = case["tokens"]
        rows.append([name, loads, finished, failed, f"{tokens['checked']:,}", str(tokens["different"]), busy])
    yield from table(head, rows)


def _stamp(report: Report) -> Iterator[str]:
    machine, profile = report["machine"], report["profile"]
    yield "## Stamp"
    yield ""
    front = profile["front_end"]
    around = "the server does not count it"
    if front is not None:
        in_s, of_it_s = front["way_in_s"] + front["request_s"], front["request_s"]
        around = (
            f"{1e3 * in_s:.2f} ms, of them {1e3 * of_it_s:.2f} ms of a process; "
            f"{1e6 * front['prompt_token_s']:.2f} us per prompt token; "
            f"{1e3 * front['running_s']:.2f} ms for each request that decodes"
        )
    memory = f"{machine['memory_bytes'] / _GIGA:.0f} GB"
    rows = [
        ["machine", f"{machine['processor']}, {machine['cores']} cores, {memory}"],
        ["servers", name_of_servers(report)],
        ["software", f"{machine['system'].partition('-')[0]}, Python {machine['python']}"],
        ["code", ", ".join(report["code"])],
        ["date", report["date"]],
        ["profile", f"{profile['steps']} kinds of steps, {profile['took_s']:.0f} s, {profile['date']}"],
        ["around the engine", around],
        ["noisy", "; ".join(profile["noisy"]) or "no"],
        ["keys", ", ".join(f"`{key}={text}`" for key, text in report["keys"].items())],
        [
            "environment",
            ", ".join(f"`{key}={text}`" for key, text in report["environment"].items()) or "none",
        ],
    ]
    yield from table(["", ""], rows)
