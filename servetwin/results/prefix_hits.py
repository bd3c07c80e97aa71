"""The tokens that prefix caching saved: per request, per model and for the run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from servetwin.assemble.hosted import codes_of, hosted_models
from servetwin.config.config import RunConfig
from simcore.chunk_starts import ChunkStarts
from traces.sharing import shared_tokens
from traces.workload import Workload

if TYPE_CHECKING:
    from serving.engine.engine import Engine

Ints = NDArray[np.int64]
NEVER: Final = -1


def cached_tokens(chunks: ChunkStarts, requests: int) -> Ints:
    """Return the cached tokens of each request id below ``requests``; ``NEVER`` if no engine began it."""
    rows = np.frombuffer(chunks.starts, dtype=np.int64).reshape(-1, 2)
    request, first = np.unique(rows[:, 0], return_index=True)
    cached = np.full(requests, NEVER, dtype=np.int64)
    cached[request] = rows[first, 1]
    return cached


def prefix_section(
    config: RunConfig, workload: Workload, cached: Ints, engines: Iterable[Engine]
) -> dict[str, Any]:
    """Return ``prefix_cache`` of summary.json. cached: every request's cached tokens, or ``NEVER``.

    Warm-up requests, which are the first rows, do not count.
    """
    hosted, first = hosted_models(config), config.trace.warmup_requests
    code, prompt = codes_of(workload, hosted)[first:], workload.prompt_tokens[first:]
    most, cached = shared_tokens(workload)[first:], cached[first:]
    evicted = dict.fromkeys((model.name for model in hosted), 0)
    for engine in engines:
        evicted[engine.replica.model] += engine.ledger.prefix_counts()[2]
    section = _numbers(prompt, cached, most, sum(evicted.values()))
    if len(hosted) > 1:
        section["models"] = {
            model.name: _numbers(prompt[mine], cached[mine], most[mine], evicted[model.name])
            for at, model in enumerate(hosted)
            if (mine := code == at).any()
        }
    return {"prefix_cache": section}


def _numbers(prompt: Ints, cached: Ints, most: Ints, evicted_blocks: int) -> dict[str, Any]:
    """Return the numbers of some requests; those that no engine began have not queried a cache."""
    begun = cached != NEVER
    queried, hits = int(prompt[begun].sum()), int(cached[begun].sum())
    return {
        "queried_tokens": queried,
        "hit_tokens": hits,
        "hit_rate": hits / queried if queried else None,
        "hit_rate_at_most": float(most.sum() / prompt.sum()),
        "requests_with_hits": int((cached > 0).sum()),
        "evicted_blocks": evicted_blocks,
    }
