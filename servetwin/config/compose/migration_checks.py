"""Refusals of settings that contradict ``system/migration``."""

from servetwin.config.config import RunConfig
from servetwin.config.migration_config import LIVE, check_migration
from serving.vocabulary.errors import UserError


def check_migrations(config: RunConfig) -> None:
    """Refuse settings that contradict ``system/migration``."""
    system, name = config.system, config.system.migration.name
    check_migration(config.migration)
    if name == "none":
        if config.migration != LIVE:
            raise UserError(
                "migration.* does nothing with system/migration=none: leave these keys out, or write "
                "system/migration=least_loaded"
            )
        return
    if system.instances.split and config.migration.victims == "neighbour":
        raise UserError(
            f"migration.victims=neighbour does not fit system={system.name}, whose decode instances keep "
            "room for what they write: write migration.victims=recompute or system=vllm"
        )
    _check_into_loading(config)
    if name == "defragment" and not system.instances.split:
        raise UserError(
            f"system/migration=defragment makes room on decode instances, and those of system={system.name} "
            "do both: write system.instances.split=true, system=distserve_half or system/migration=llumnix"
        )
    if system.live.name != "none":
        raise UserError(
            f"system/migration={name} does not fit system/live={system.live.name}, whose new instances take "
            "batches over while they load: write system/live=none or system/migration=none"
        )
    if config.engine.data_parallel_size > 1:
        raise UserError(
            f"system/migration={name} does not fit engine.data_parallel_size="
            f"{config.engine.data_parallel_size}, whose ranks step together: write "
            "engine.data_parallel_size=1 or system/migration=none"
        )
    if config.cluster.topology is None:
        raise UserError(
            f"system/migration={name} moves KV over links, and cluster={config.cluster.name} has none: write "
            "a cluster that has, such as cluster=llumnix or cluster=dgx_h100"
        )


def _check_into_loading(config: RunConfig) -> None:
    """Refuse into_loading without new instances that do both roles, and in real runs."""
    if not config.migration.into_loading:
        return
    system = config.system
    if system.instances.split or not system.elastic:
        raise UserError(
            "migration.into_loading=true is of instances that come and do both, and those of "
            f"system={system.name} do not: write system=llumnix_base_autoscaled or "
            "migration.into_loading=false"
        )
    if config.kind == "realexec":
        raise UserError(
            "migration.into_loading=true is simulated only, for a worker that loads takes no KV: write "
            "migration.into_loading=false"
        )
