"""Outcomes of migrations of running requests, for summary.json."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from servetwin.results.elastic_summary import NS_PER_MS
from serving.controller import Controller
from serving.elastic.elastic import Elastic
from serving.kv.migration_log import COMMITTED, MigrationRecord
from serving.kv.migration_rules import CAUSES, CLIENT_LEFT, SUPERSEDED
from serving.protocols.scaling import ScaleEvent
from serving.services.colocated.migrating import Migrating
from serving.services.disaggregated.decode_migrating import DecodeMigrating
from serving.vocabulary.units import NS_PER_S

# How soon a new instance receives its first migrated request: for summary.json.


def first_after_s(
    controller: Controller, records: Sequence[MigrationRecord]
) -> tuple[list[float], list[float]]:
    """Return the seconds since the decision and since the load, of each new instance that received one."""
    if not isinstance(controller.elastic, Elastic):
        return [], []
    commits: dict[int, list[int]] = {}
    for record in records:  # in order of their ends
        if record.outcome == COMMITTED:
            commits.setdefault(record.destination, []).append(record.ended_ns)
    of_replica: dict[int, list[ScaleEvent]] = {}
    for event in controller.elastic.deployment.log.events:
        if event.act in ("load", "ready", "released", "lost"):
            of_replica.setdefault(event.replica, []).append(event)
    running = [span for replica, own in of_replica.items() for span in spans(own, commits.get(replica, []))]
    return [decision_ns / NS_PER_S for decision_ns, _ in running], [ns / NS_PER_S for _, ns in running]


def spans(own: Sequence[ScaleEvent], commits: Sequence[int]) -> list[tuple[int, int]]:
    """Return (ns from decision, ns from load) to the first commit, for each time the replica was loaded."""
    ends = []
    for load, ready, after in zip(own, own[1:], [*own[2:], None]):
        if (load.act, ready.act) != ("load", "ready"):
            continue
        first = bisect_left(commits, ready.now_ns)
        if first < len(commits) and (after is None or commits[first] <= after.now_ns):
            ends.append((commits[first] - load.now_ns, commits[first] - ready.now_ns))
    return ends


def migration_summary(controller: Controller) -> dict[str, Any]:
    """Summarize all models together; empty if requests do not migrate.

    ``down_ms``: how long migrated requests were in no batch. ``paired_in_vain``: pairs of instances without a
    request to move. ``active_s``: how long at least one migration was in progress.
    """
    services = controller.services.values()
    logs = [
        service.migrations.log for service in services if isinstance(service, Migrating | DecodeMigrating)
    ]
    if not logs:
        return {}
    records = [record for log in logs for record in log.records]
    committed = [record for record in records if record.outcome == COMMITTED]
    outcomes = Counter(record.outcome for record in records)
    return {
        "migrations": {
            "started": len(records),
            "committed": len(committed),
            "aborted": {cause: outcomes[cause] for cause in (*CAUSES, *_rare_outcomes(outcomes))},
            "paired_in_vain": sum(log.declined for log in logs),
            "requests": len({record.request for record in committed}),
            "down_ms": _spread([record.down_ns / NS_PER_MS for record in committed]),
            "took_ms": _spread([(record.ended_ns - record.begun_ns) / NS_PER_MS for record in committed]),
            "stages": dict(sorted(Counter(str(record.stages) for record in committed).items())),
            "moved_bytes": sum(record.moved_bytes for record in records),
            "wasted_bytes": sum(record.moved_bytes for record in records if record.outcome != COMMITTED),
            "active_s": _active_ns(records) / NS_PER_S,
            **_new_instances(controller, records),
        }
    }


def _new_instances(controller: Controller, records: Sequence[MigrationRecord]) -> dict[str, Any]:
    """Return how soon new instances received their first migrated request; empty if none did."""
    decision_s, loaded_s = first_after_s(controller, records)
    if not decision_s:
        return {}
    means = {"decision_s": {"mean": fmean(decision_s)}, "loaded_s": {"mean": fmean(loaded_s)}}
    return {"new_instances": {"count": len(decision_s), **means}}


def _rare_outcomes(outcomes: Mapping[str, int]) -> tuple[str, ...]:
    """Return outcomes that need loading instances, or clients that give up, if they occurred."""
    return tuple(cause for cause in (SUPERSEDED, CLIENT_LEFT) if outcomes[cause])


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {"p50": None, "p99": None, "max": None}
    import numpy as np

    p50, p99 = np.quantile(np.asarray(values), (0.5, 0.99)).tolist()
    return {"p50": p50, "p99": p99, "max": max(values)}


def _active_ns(records: Sequence[MigrationRecord]) -> int:
    """Return how long at least one migration was in progress."""
    active_ns = last_ns = 0
    for begun_ns, ended_ns in sorted((record.begun_ns, record.ended_ns) for record in records):
        if ended_ns > last_ns:
            active_ns += ended_ns - max(begun_ns, last_ns)
            last_ns = ended_ns
    return active_ns
