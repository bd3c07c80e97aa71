"""Which library's tables a run's step times come from: kept in its configuration, and held to afterwards."""

from dataclasses import replace

from hwmodels.catalogue import load_gpu
from hwmodels.catalogue.stacks import is_stack
from hwmodels.models.parallelism import Parallelism
from hwmodels.step_times.aiconfigurator_library import tables_stamp
from hwmodels.step_times.select import asks_library
from servetwin.assemble.hosted import hosted_models
from servetwin.config.config import RunConfig
from serving.vocabulary.errors import UserError


def with_library_tables(config: RunConfig) -> RunConfig:
    """Return the configuration with the library and tables of its step times; None where it asks none.

    Raises UserError if an earlier run, whose configuration this is, had others.
    """
    stamp = tables_stamp(config.cluster.gpu) if _asks(config) else None
    if stamp == config.engine.step_time_tables:
        return config
    if stamp is not None:
        check_library_tables(config.engine.step_time_tables, stamp)
    return replace(config, engine=replace(config.engine, step_time_tables=stamp))


def check_library_tables(kept: str | None, installed: str) -> None:
    """Refuse step times from other tables than those that a run kept."""
    if kept not in (None, installed):
        raise UserError(
            f"the step times of this run came from {kept}, and {installed} is installed: install that, or "
            "write engine.step_time_tables=null to run it on what is installed"
        )


def _asks(config: RunConfig) -> bool:
    engine = config.engine
    if config.kind != "simulate" or engine.step_time not in ("auto", "aiconfigurator"):
        return False
    models = [model for model in hosted_models(config) if not is_stack(model.shape_name)]
    if engine.step_time == "aiconfigurator":
        return bool(models)
    if engine.profile is not None:
        return False
    gpu, dp, ep = load_gpu(config.cluster.gpu), engine.data_parallel_size, engine.enable_expert_parallel
    kinds = {(model.shape, model.tp) for model in models}
    return any(asks_library(gpu, shape, Parallelism(tp, dp, ep)) for shape, tp in kinds)
