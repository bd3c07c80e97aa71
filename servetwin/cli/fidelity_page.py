"""The page of ``realexec fidelity``: a claim, its numbers, and the machine of the runs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from servetwin.cli.fidelity_runs import SCALING
from servetwin.compare.agreement import STATISTICS
from servetwin.compare.decisions import KINDS
from servetwin.compare.repeated import AGREES, FAR, MOST_APART, MOST_RATIO
from servetwin.report.number_text import NOTHING
from servetwin.report.table import LATENCIES

_LABELS: Final = dict(LATENCIES)
RULE: Final = (
    "The interval is 95 % of resampled blocks of arrival time and halves of the runs; a rerun: the ratio of "
    "an unusual real run to the others, the second highest of five. A row differs where all the interval is "
    f"above it and above {MOST_RATIO:g}; else the simulation cannot be told from a rerun."
)
_MEGA: Final = 1e6
_GIGA: Final = 1e9
_VERSIONS: Final = {"Python": "python", "torch": "torch", "transformers": "transformers"}
Report = Mapping[str, Any]


def as_page(report: Report) -> str:
    """Return Markdown for the content of fidelity.json."""
    title = report["title"] or f"{report['machine']['processor']}, {report['machine']['cores']} cores"
    lines = [f"# Fidelity: {title}", "", claim(report), "", f"    $ {report['command']}", ""]
    for part in (_timing, _holds, decisions, _moves_section, _rates, _stamp):
        lines += [*part(report), ""]
    return "\n".join(lines).rstrip() + "\n"


def lines_of(report: Report) -> Iterator[str]:
    """Return lines for a terminal."""
    yield claim(report)
    for name, case in report["cases"].items():
        timing = case["agreement"]["timing"]
        ratios = ", ".join(
            f"{_LABELS[metric]} {two_digits(row['ratio']['mean'])}" for metric, row in timing.items()
        )
        tokens = case["tokens"]
        checked = f"{tokens['checked']} tokens checked, {tokens['different']} differ"
        yield f"{name}: simulated / real {ratios}; {checked}"


def claim(report: Report) -> str:
    """Return the claim as one sentence, or that nothing is claimed."""
    if why := nothing_claimed(report):
        return f"{why}{_not_scaled(report)}"
    rows = [
        (name, row) for name, case in report["cases"].items() for row in case["agreement"]["timing"].values()
    ]
    decided = [(name, row["verdict"]) for name, row in rows if row["decides"]]
    alike = [name for name, verdict in decided if verdict == AGREES]
    sentence = (
        f"{len(decided)} of {len(rows)} rows decide; in {len(alike)} of them the simulation cannot be told "
        "from a rerun"
    )
    whole = [name for name, case in report["cases"].items() if case["agreement"]["agrees"]]
    if whole:
        sentence += f", in {', '.join(whole)} in all"
    elif alike:
        sentence += f" ({', '.join(dict.fromkeys(alike))})"
    return f"**{sentence}.**{_not_scaled(report)}"


def nothing_claimed(report: Report) -> str:
    """Return why nothing is claimed of any report with cases, as a sentence; empty if something is."""
    if report["cut_down"]:
        return "**Nothing is claimed: this was a shorter try, with fewer repeats or requests.**"
    if noisy := report["profile"]["noisy"]:
        return (
            f"**Nothing is claimed: the machine was not quiet while its steps were measured ({noisy[0]}).** "
            "The numbers are of that hour."
        )
    busy = [
        name for name, case in report["cases"].items() if sum(not one["quiet"] for one in case["quiet"]) > 1
    ]
    if busy:
        return (
            f"**Nothing is claimed: other programs used the cores before several runs of {', '.join(busy)}.**"
        )
    return ""


def _not_scaled(report: Report) -> str:
    """Return a warning if a run of the scaling case did not scale: it shows nothing about scaling."""
    case = report["cases"].get(SCALING)
    without = [] if case is None else [loads for loads in case["moved"]["loads"] if not loads]
    if case is None or not without:
        return ""
    of_runs = f"{len(without)} of {len(case['moved']['loads'])} real runs of the case `{SCALING}`"
    return f" **{of_runs} loaded nothing: its rows are not of a system that scales.**"


def _timing(report: Report) -> Iterator[str]:
    yield "## Simulated over real"
    yield ""
    yield (
        f"Medians over {report['repeats']} real runs of each case, without one that was disturbed. D_sim: "
        "Kolmogorov-Smirnov distance from the simulation to a real run, D_repeat: from one real run to "
        f"another. {RULE} A row decides if the means of its real runs are at most {MOST_APART:.0%} apart."
    )
    yield ""
    head = [
        "case",
        "load",
        "metric",
        "requests",
        *STATISTICS,
        "D_sim / D_repeat",
        "95 %",
        "a rerun",
        "real means apart",
        "",
    ]
    rows = []
    for name, case in report["cases"].items():
        agreement = case["agreement"]
        for metric, row in agreement["timing"].items():
            ratios = [two_digits(row["ratio"][statistic]) for statistic in STATISTICS]
            verdict = row["verdict"] if row["decides"] and not nothing_claimed(report) else "not claimed"
            low, high = row["interval"]
            rows.append(
                [name, case["keys"]["trace.utilization"], _LABELS[metric], str(row["requests"]), *ratios,
                 two_digits(row["d_sim_over_d_repeat"]), f"{low:.2f} to {high:.2f}",
                 two_digits(row["unusual_run"]), f"{row['real_means_apart']:.0%}", verdict]
            )  # fmt: skip
    yield from table(head, rows)
    yield from disturbed_runs(report)
    causes: dict[str, list[str]] = {}  # causes shared by several cases are printed once
    for name, case in report["cases"].items():
        for why in case["agreement"]["refused"]:
            causes.setdefault(why, []).append(name)
    if causes:
        yield ""
        yield "Why nothing is claimed:"
        yield ""
        yield from (f"* {', '.join(names)}: {why}" for why, names in causes.items())


def disturbed_runs(report: Report) -> Iterator[str]:
    """Return the rows of cases with a disturbed run, with that run; of any report with cases."""
    rows = [
        [name, _LABELS[metric], case["agreement"]["disturbed"], two_digits(every["d_sim_over_d_repeat"]),
         f"{every['real_means_apart']:.0%}", every["verdict"] if every["decides"] else "decides nothing"]
        for name, case in report["cases"].items() if case["agreement"]["disturbed"]
        for metric, row in case["agreement"]["timing"].items()
        for every in (row["with_all"],)
    ]  # fmt: skip
    yield ""
    if not rows:
        yield f"No run was disturbed: no mean is more than {FAR:.0%} from the median of the other runs."
        return
    yield (
        f"A run with a mean more than {FAR:.0%} from the median of the others was disturbed and is left out "
        "above, at most one of a case. With it:"
    )
    yield ""
    yield from table(["case", "metric", "disturbed", "D_sim / D_repeat", "real means apart", ""], rows)


def _holds(report: Report) -> Iterator[str]:
    yield "## Range"
    yield ""
    yield (
        "The highest load up to which the simulation of the static system agrees, as a multiple of the load "
        "that its instances keep up with:"
    )
    yield ""
    rows = [[_LABELS[m], "nowhere" if load is None else f"{load:g}"] for m, load in report["holds"].items()]
    yield from table(["metric", "up to"], rows or [["none was compared", NOTHING]])


def decisions(report: Report) -> Iterator[str]:
    """Return the section of decisions in common, of any report with cases."""
    yield "## Decisions in common"
    yield ""
    yield (
        "Decisions that both runs took, at whatever time, as a share of all decisions of the two: simulated "
        "and real / two real runs."
    )
    yield ""
    rows = []
    for name, case in report["cases"].items():
        sides = (case["agreement"]["decisions"], case["agreement"]["repeated_decisions"])
        rows.append([name, *(" / ".join(_rate(side, kind) for side in sides) for kind in (*KINDS, "all"))])
    yield from table(["case: simulated / rerun", *KINDS, "all"], rows)


def _moves_section(report: Report) -> Iterator[str]:
    yield "## Loads, moves and tokens of the real runs"
    yield ""
    head = [
        "case",
        "loads",
        "live passes",
        "migrations",
        "hand-overs",
        "transport",
        "tokens checked",
        "different",
        "failed",
    ]
    rows = []
    for name, case in report["cases"].items():
        moved, tokens = case["moved"], case["tokens"]
        cells = [_each(moved[key]) for key in ("loads", "live_passes", "migrations", "handoffs", "transport")]
        checked = [f"{tokens['checked']:,}", str(tokens["different"])]
        rows.append([name, *cells, *checked, _each(case["requests"]["failed"][1:])])
    yield from table(head, rows)


def _rates(report: Report) -> Iterator[str]:
    yield "## Rates"
    yield ""
    yield (
        "raw: measured without ServeTwin's code. The others: medians that worker processes measured for the "
        "profile."
    )
    yield ""
    rates = report["rates"]
    rows = [[f"raw: {name}", _mb(rate)] for name, rate in rates["raw"].items()]
    yield from table(["path", "MB/s"], [*rows, *([name, _mb(rate)] for name, rate in rates["ways"].items())])


def _stamp(report: Report) -> Iterator[str]:
    machine, code, profile = report["machine"], report["code"], report["profile"]
    ratio = profile["wall_over_cpu"]
    yield "## Stamp"
    yield ""
    cores, memory = machine["cores"], machine["memory_bytes"] / _GIGA
    versions = [f"{name} {machine[key]}" for name, key in _VERSIONS.items()]
    busy = f"{profile['workers_busy']} workers busy, {profile['date']}"
    rows = [
        ["machine", f"{machine['processor']}, {cores} cores, {memory:.0f} GB"],
        ["GPUs", ", ".join(machine["cuda_devices"]) or "none"],
        ["software", ", ".join([machine["system"].partition("-")[0], *versions])],
        ["code", ", ".join(code)],
        ["date", report["date"]],
        ["profile", f"{profile['steps']} kinds of steps, {busy}"],
        ["time over CPU time of its workers", "not known" if ratio is None else f"{ratio:.2f}"],
        ["noisy", "; ".join(profile["noisy"]) or "no"],
        ["keys", ", ".join(f"`{key}={text}`" for key, text in report["keys"].items())],
    ]
    yield from table(["", ""], rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return a table in Markdown."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    yield from (f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)


def _rate(side: Sequence[Report], kind: str) -> str:
    rates = [match["rate"][kind] for match in side if match["rate"][kind] is not None]
    return f"{sum(rates) / len(rates):.0%}" if rates else NOTHING


def _each(values: Sequence[Any]) -> str:
    """Return a single value if all runs have the same."""
    return ", ".join(map(str, values if len(set(values)) > 1 else values[:1]))


def two_digits(value: float | None) -> str:
    """Return a ratio."""
    return NOTHING if value is None else f"{value:.2f}"


def _mb(rate: float | None) -> str:
    return NOTHING if rate is None else f"{rate / _MEGA:,.0f}"
