"""Whether prompts of a run share prefixes, and which requests others name."""

from experiments.config.config import RunConfig
from traces.sharing import named_rows
from traces.workload import Workload


def shares_prefixes(config: RunConfig, workload: Workload) -> bool:
    """Whether requests of this run tell what their prompts share, and engines look for it."""
    return workload.prefix is not None and config.engine.prefix_caching


def named_requests(config: RunConfig, workload: Workload) -> bytes:
    """By id, 1 for a request whose tokens others may name; nothing where nobody looks for any."""
    return named_rows(workload) if shares_prefixes(config, workload) else b""
