"""Outcomes of migrations of running requests, for summary.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from servetwin.results.elastic_summary import NS_PER_MS
from servetwin.results.first_migrations import first_after_s
from serving.controller import Controller
from serving.kv.migration_log import COMMITTED, MigrationRecord
from serving.kv.migration_rules import CAUSES, SUPERSEDED
from serving.services.colocated.migrating import Migrating
from serving.services.disaggregated.decode_migrating import DecodeMigrating
from serving.vocabulary.units import NS_PER_S


def migration_summary(controller: Controller) -> dict[str, Any]:
    """Summarize all models together; empty if requests do not migrate.

    ``down_ms``: how long migrated requests were in no batch. ``paired_in_vain``: pairs of instances without a
    request to move. ``active_s``: how long at least one migration was in progress.
    """
    services = controller.services.values()
    logs = [one.migrations.log for one in services if isinstance(one, Migrating | DecodeMigrating)]
    if not logs:
        return {}
    records = [record for log in logs for record in log.records]
    committed = [record for record in records if record.outcome == COMMITTED]
    outcomes = Counter(record.outcome for record in records)
    return {
        "migrations": {
            "started": len(records),
            "committed": len(committed),
            "aborted": {cause: outcomes[cause] for cause in (*CAUSES, *_superseded(outcomes))},
            "paired_in_vain": sum(log.declined for log in logs),
            "requests": len({record.request for record in committed}),
            "down_ms": _spread([record.down_ns / NS_PER_MS for record in committed]),
            "took_ms": _spread([(one.ended_ns - one.begun_ns) / NS_PER_MS for one in committed]),
            "stages": dict(sorted(Counter(str(record.stages) for record in committed).items())),
            "moved_bytes": sum(record.moved_bytes for record in records),
            "wasted_bytes": sum(one.moved_bytes for one in records if one.outcome != COMMITTED),
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


def _superseded(outcomes: Mapping[str, int]) -> tuple[str, ...]:
    """Return the extra outcome of migrations to instances that are still loading, if it occurred."""
    return (SUPERSEDED,) if outcomes[SUPERSEDED] else ()


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {"p50": None, "p99": None, "max": None}
    import numpy as np

    p50, p99 = np.quantile(np.asarray(values), (0.5, 0.99)).tolist()
    return {"p50": p50, "p99": p99, "max": max(values)}


def _active_ns(records: Sequence[MigrationRecord]) -> int:
    """Return how long at least one migration was in progress."""
    active_ns = last_ns = 0
    for begun_ns, ended_ns in sorted((one.begun_ns, one.ended_ns) for one in records):
        if ended_ns > last_ns:
            active_ns += ended_ns - max(begun_ns, last_ns)
            last_ns = ended_ns
    return active_ns
