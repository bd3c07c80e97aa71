"""Whether the policies of a run read load reports of instances, and how often there are some."""

from collections.abc import Sequence
from typing import Any, Final

from experiments.config.config import RunConfig
from serving.vocabulary.errors import UserError

NS_PER_MS: Final = 1_000_000


def reports_period_ns(config: RunConfig, dispatcher: Any, migrator: Any | None) -> int:
    """Between two load reports; 0: nobody reads any. Raises UserError where there can be none."""
    readers = [one for one in (dispatcher, migrator) if getattr(one, "reads_load_reports", False)]
    if not readers:
        return 0
    _check(config, [f"{type(one).__module__}:{type(one).__qualname__}" for one in readers])
    period_ms: float = config.migration.period_ms
    age_ms: float = getattr(dispatcher, "reports_age_ms", period_ms)
    if migrator is not None and age_ms != period_ms:
        raise UserError(
            f"system.dispatch.params.reports_age_ms={age_ms:g} and migration.period_ms={period_ms:g} are the "
            "same rounds: write the same for both"
        )
    return round(age_ms * NS_PER_MS)


def _check(config: RunConfig, readers: Sequence[str]) -> None:
    system = config.system
    what, instead = f"{readers[0]} reads load reports", "write system/dispatch=least_outstanding"
    if config.kind == "realexec":
        raise UserError(f"{what}, which real workers do not make yet: {instead}")
    if system.elastic or system.instances.split:
        raise UserError(
            f"{what}, which only instances make that do both and stay, and those of system={system.name} do "
            f"not: {instead}"
        )
    if config.engine.data_parallel_size > 1:
        raise UserError(
            f"{what}, which ranks that step together do not make "
            f"(engine.data_parallel_size={config.engine.data_parallel_size}): {instead}"
        )
