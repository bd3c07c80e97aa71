"""Figure 19: how many copies of a model the hosts' memories hold, one against as many as hosts."""

from experiments.blitzscale.set_ups import BLITZ, case_of, serverless, workloads
from experiments.common.compare import order_row, value_row
from experiments.common.figure import Figure, FigureRow, Panel, PlotLine
from experiments.common.outcomes import CACHE_MAX, CACHE_MEAN, Metric, Outcomes
from experiments.common.set_up import Case, SetUp, Words, value_of
from experiments.common.verdict import Claim, at_most, within
from hwmodels.catalogue import load_llm
from hwmodels.topology.cluster_file import load_cluster


def cases() -> tuple[Case, ...]:
    """Every workload with the systems that keep copies in host memory."""
    return tuple(case for set_up in workloads() for case in _cases_of(set_up))


def _cases_of(set_up: SetUp) -> tuple[Case, ...]:
    shipped, text, _, logical, _ = serverless(set_up)
    return (case_of(set_up, BLITZ), shipped, case_of(set_up, "allcache"), text, logical)


def fig19(outcomes: Outcomes) -> Figure:
    """Mean and largest number of copies of each system in each workload."""
    rows = [row for set_up in workloads() for row in _rows(outcomes, set_up)]
    inputs = tuple(
        f"{set_up.name}: a copy is {_copy_bytes(set_up) / 1e9:.1f} GB, {_hosts(set_up.words)} hosts"
        for set_up in workloads()
    )
    title = "Figure 19: copies in host memory"
    return Figure("fig19", title, tuple(rows), panels=_panels(outcomes), inputs=inputs)


def _rows(outcomes: Outcomes, set_up: SetUp) -> list[FigureRow]:
    blitz, shipped, allcache, text, logical = _cases_of(set_up)
    hosts, copy = _hosts(set_up.words), _copy_bytes(set_up)
    each = Claim(f"one per host ({hosts})", hosts, hosts, slack=1.01, kind="paper_number")
    least = at_most(1, "at most one copy", "paper_number")
    name = set_up.name
    return [
        value_row(outcomes, f"{name}: most copies, {BLITZ}", least, CACHE_MAX, ours=blitz, unit=copy),
        value_row(outcomes, f"{name}: mean copies, allcache", each, CACHE_MEAN, ours=allcache, unit=copy),
        *(
            value_row(
                outcomes,
                f"{name}: mean copies, {case.label}",
                _hosts_claim(case),
                CACHE_MEAN,
                ours=case,
                unit=copy,
            )
            for case in (shipped, text, logical)
        ),
        order_row(outcomes, f"{name}: mean bytes", CACHE_MEAN, (blitz, shipped, allcache)),
    ]


def _hosts_claim(case: Case) -> Claim:
    hosts = _hosts(case.all_words())
    return within(1, hosts, f"O(hosts), here 1 to {hosts}", "paper_direction")


def _panels(outcomes: Outcomes) -> tuple[Panel, ...]:
    """Mean copies by workload, a line of points per system."""
    labels = [case.label for case in _cases_of(workloads()[0])]
    lines = []
    for place, label in enumerate(labels):
        points = [
            (x, _copies(outcomes, _cases_of(set_up)[place], CACHE_MEAN))
            for x, set_up in enumerate(workloads())
        ]
        known = [(float(x), y) for x, y in points if y is not None]
        if known:
            lines.append(PlotLine(label, [x for x, _ in known], [y for _, y in known], "o"))
    names = tuple(set_up.name for set_up in workloads())
    return (Panel("mean copies in host memory", "", "copies", tuple(lines), ticks=names),) if lines else ()


def _copies(outcomes: Outcomes, case: Case, metric: Metric) -> float | None:
    values = metric.of(outcomes.of(case))
    return None if not values else sum(values) / len(values) / _copy_bytes(case.set_up)


def _copy_bytes(set_up: SetUp) -> int:
    return load_llm(set_up.word("model")).weight_bytes


def _hosts(words: Words) -> int:
    return load_cluster(value_of(words, "cluster")).hosts
