"""Whether prompts of a run share prefixes, and which requests are named by other requests."""

from servetwin.config.config import RunConfig
from traces.sharing import named_rows
from traces.workload import Workload


def shares_prefixes(config: RunConfig, workload: Workload) -> bool:
    """Return whether requests carry what their prompts share, and engines look for it."""
    return workload.prefix is not None and config.engine.prefix_caching


def named_requests(config: RunConfig, workload: Workload) -> bytes:
    """Return, by id, 1 for a request whose tokens others may name; empty if engines look for none."""
    if finds_own_prompts(config):
        return b"\1" * len(workload)
    return named_rows(workload) if shares_prefixes(config, workload) else b""


def finds_own_prompts(config: RunConfig) -> bool:
    """Return whether a request that a client sends again may find its prompt in a prefix cache."""
    return config.trace.retries > 0 and config.engine.prefix_caching
