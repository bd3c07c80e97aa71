"""From a configuration to how its instances start."""

from experiments.config.config import EngineConfig, RunConfig
from hwmodels.loading.start_terms import StartTerms, load_start_terms
from hwmodels.loading.starting import Starting


def start_terms_of(engine: EngineConfig) -> StartTerms:
    """The terms of an engine; the version counts where it is that of the engine which starts."""
    version = engine.version if engine.software == engine.start_up else None
    return load_start_terms(engine.start_up, version)


def starting_of(config: RunConfig) -> Starting | None:
    """How instances start, None where the run does not say. Raises HardwareError."""
    one = config.system.instances
    if one.start is None:
        return None
    return Starting(
        one.start,
        one.compile_cache,
        start_terms_of(config.engine),
        config.engine.max_num_seqs,
        ready=config.cluster.start == "warm",
    )


def runs_layers_early(config: RunConfig) -> str:
    """The setting by which instances run layers before they have all; "" without one."""
    system = config.system
    if system.live.name not in ("none", "stop"):
        return f"system/live={system.live.name}"
    return "system.provision.overlap=true" if system.provision.params.get("overlap") else ""
