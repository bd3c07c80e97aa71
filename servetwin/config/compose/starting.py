"""Derives from the configuration how instances start."""

from hwmodels.loading.start_terms import StartTerms, load_start_terms
from hwmodels.loading.starting import TOTAL, Starting
from servetwin.config.config import RunConfig
from servetwin.config.engine_config import EngineConfig


def start_terms_of(engine: EngineConfig) -> StartTerms:
    """Return the engine's start terms; its version is used only if ``start_up`` is the same software."""
    version = engine.version if engine.software == engine.start_up else None
    return load_start_terms(engine.start_up, version)


def starting_of(config: RunConfig) -> Starting | None:
    """Return how instances start; None if the run does not define it. Raises HardwareError."""
    one = config.system.instances
    if one.start is None and one.start_total_s is None:
        return None
    return Starting(
        kind=one.start or TOTAL,
        compile_cache=one.compile_cache,
        terms=start_terms_of(config.engine),
        max_num_seqs=config.engine.max_num_seqs,
        ready=config.cluster.start == "warm",
        total_s=one.start_total_s or 0.0,
        image_pull_s=one.image_pull_s,
        probe_s=one.probe_s,
    )


def runs_layers_early(config: RunConfig) -> str:
    """Return the setting with which instances run layers before the load is complete; "" without one."""
    system = config.system
    if system.live.name not in ("none", "stop"):
        return f"system/live={system.live.name}"
    return "system.provision.overlap=true" if system.provision.params.get("overlap") else ""
