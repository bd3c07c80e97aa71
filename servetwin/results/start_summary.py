"""How a run's instances started, and how long each part of a start took, for summary.json."""

from collections import Counter
from statistics import median
from typing import Any, Final

from hwmodels.loading.starting import CACHED, COMPILED, TOTAL
from hwmodels.loading.startup import load_start_up
from servetwin.config.compose.starting import runs_layers_early, starting_of
from servetwin.config.config import RunConfig
from simcore.data_plane.data_plane import DataPlane
from simcore.data_plane.starts import StartRecord

DECLARED: Final = "declared"
_WARM: Final = (
    *("context_s", "communicator_s", "compile_cached_s_per_layer", "profiling_s"),
    *("graphs_s", "graph_s_per_layer", "first_request_s"),
)
_COLD: Final = ("process_s", "p2p_check_s_per_pair", "compile_s_per_layer", *_WARM)
_SOURCES: Final = {
    "cold": _COLD,
    "warm": _WARM,
    "hot": ("wake_s", "sleep_bytes_per_s", *_COLD),
    "pooled": (),
    TOTAL: (),
}


def start_summary(data_plane: DataPlane, config: RunConfig) -> dict[str, Any]:
    """Return ``starts``: the assumed start (``declared``: the engine's entry of loaders.yaml), how many of
    each kind completed, how many compiled and how many found the cache, and the median seconds of each term.

    ``note``: what the declaration leaves open. ``sources``: the sources of the terms, under their names in
    start_up.yaml. ``weights`` is the rest of a start: the transfer of the bytes, including waits for others.
    ``each``: a row per target of a load, stopped ones too, by the load's number.
    """
    records = [record for record in data_plane.starts.records if record.complete]
    early = runs_layers_early(config)
    compiles = config.system.instances.start in ("cold", "hot")
    answer: dict[str, Any] = {
        "start": starting.kind if (starting := starting_of(config)) is not None else DECLARED,
        "engine": config.engine.start_up,
        "compile_cache": config.system.instances.compile_cache if compiles else None,
        "count": dict(sorted(Counter(record.kind or DECLARED for record in records).items())),
        COMPILED: sum(record.compiled == COMPILED for record in records),
        CACHED: sum(record.compiled == CACHED for record in records),
        "median_s": {},
    }
    if records:
        total_s = median(record.seconds for record in records)
        answer["median_s"] = {**_terms(records), "total": total_s}
    if starting is not None:
        answer["each"] = [_one(record) for record in data_plane.starts.records]
        answer["sources"] = {term: starting.terms.sources[term] for term in _SOURCES[starting.kind]}
    elif early and load_start_up(config.engine.start_up).engine_init_s:
        answer["note"] = f"{early} runs layers before the engine's preparations, which follow the last"
    return {"starts": answer}


def _one(record: StartRecord) -> dict[str, Any]:
    return {
        "load": record.load,
        "target": record.target,
        "kind": record.kind,
        "compiled": record.compiled or None,
        "complete": record.complete,
        "seconds": record.seconds,
        "terms_s": dict(record.terms),
    }


def _terms(records: list[StartRecord]) -> dict[str, float]:
    """Return median seconds by term, in order of time; a term that a start does not have counts as 0."""
    weights = [max(0.0, record.seconds - sum(seconds for _, seconds in record.terms)) for record in records]
    names = dict.fromkeys(name for record in records for name, _ in record.terms)
    of_each = [dict(record.terms) for record in records]
    terms = {name: median(terms_s.get(name, 0.0) for terms_s in of_each) for name in names}
    return terms | {"weights": median(weights)}
