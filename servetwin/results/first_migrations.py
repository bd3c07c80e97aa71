"""How soon a new instance receives its first migrated request: for summary.json."""

from bisect import bisect_left
from collections.abc import Sequence

from serving.controller import Controller
from serving.elastic.elastic import Elastic
from serving.kv.migration_log import COMMITTED, MigrationRecord
from serving.protocols.scaling import ScaleEvent
from serving.vocabulary.units import NS_PER_S


def first_after_s(
    controller: Controller, records: Sequence[MigrationRecord]
) -> tuple[list[float], list[float]]:
    """Return the seconds since the decision and since the load, of each new instance that received one."""
    if not isinstance(controller.elastic, Elastic):
        return [], []
    commits: dict[int, list[int]] = {}
    for one in records:  # in order of their ends
        if one.outcome == COMMITTED:
            commits.setdefault(one.destination, []).append(one.ended_ns)
    of_replica: dict[int, list[ScaleEvent]] = {}
    for event in controller.elastic.deployment.log.events:
        if event.act in ("load", "ready", "released", "lost"):
            of_replica.setdefault(event.replica, []).append(event)
    found = [span for replica, own in of_replica.items() for span in spans(own, commits.get(replica, []))]
    return [decision_ns / NS_PER_S for decision_ns, _ in found], [ns / NS_PER_S for _, ns in found]


def spans(own: Sequence[ScaleEvent], commits: Sequence[int]) -> list[tuple[int, int]]:
    """Return (ns from decision, ns from load) to the first commit, for each time the replica was loaded."""
    found = []
    for load, ready, after in zip(own, own[1:], [*own[2:], None]):
        if (load.act, ready.act) != ("load", "ready"):
            continue
        first = bisect_left(commits, ready.now_ns)
        if first < len(commits) and (after is None or commits[first] <= after.now_ns):
            found.append((commits[first] - load.now_ns, commits[first] - ready.now_ns))
    return found
