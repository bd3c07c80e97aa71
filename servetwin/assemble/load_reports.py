"""Whether a run's policies read load reports of instances, and how often instances send them."""

from collections.abc import Sequence
from typing import Any, Final

from servetwin.config.config import RunConfig
from serving.protocols.load_report import ReportsAt
from serving.vocabulary.errors import UserError

NS_PER_MS: Final = 1_000_000


def reports_period_ns(config: RunConfig, dispatcher: Any, migrator: Any | None, scaler: Any | None) -> int:
    """Return the ns between load reports; 0: no policy reads them. UserError if none can be made.

    A migrator sees the reserved memory of decode instances, which is in no load report.
    """
    policies = (dispatcher, None if config.system.instances.split else migrator, scaler)
    readers = [policy for policy in policies if getattr(policy, "reads_load_reports", False)]
    if not readers:
        return 0
    _check(config, [f"{type(reader).__module__}:{type(reader).__qualname__}" for reader in readers])
    period_ms: float = config.migration.period_ms
    age_ms: float = getattr(dispatcher, "reports_age_ms", period_ms)
    if migrator is not None and age_ms != period_ms:
        raise UserError(
            f"system.dispatch.params.reports_age_ms={age_ms:g} and migration.period_ms={period_ms:g} are the "
            "same rounds: write the same for both"
        )
    _check_monitor(config, age_ms)
    return round(age_ms * NS_PER_MS)


def reports_at(config: RunConfig, dispatcher: Any) -> ReportsAt:
    """Return when instances report their load; at every change if the dispatcher does not define it."""
    kind: ReportsAt | None = getattr(dispatcher, "reports_at", "changes")
    if kind is None:
        return "changes" if config.engine.asynchronous else "step_ends"
    if kind == "step_ends" and config.engine.asynchronous:
        raise UserError(
            "system.dispatch.params.reports_at=step_ends is of engines that choose a step after the last one "
            f"has ended, and engine={config.engine.name} does not: write system.dispatch.reports_at=changes"
        )
    return kind


def _check(config: RunConfig, readers: Sequence[str]) -> None:
    system = config.system
    cause, instead = f"{readers[0]} reads load reports", "write system/dispatch=least_outstanding"
    if system.instances.split:
        raise UserError(
            f"{cause}, which only instances make that do both, and those of system={system.name} do not: "
            f"{instead}"
        )
    if system.live.name != "none":
        raise UserError(
            f"{cause}, which instances that work while they load do not make "
            f"(system/live={system.live.name}): write system/live=none"
        )
    if system.instances.queue == "common":
        raise UserError(
            f"{cause}, which tell of the queue of each instance: write system.instances.queue=per_instance"
        )
    if config.engine.data_parallel_size > 1:
        raise UserError(
            f"{cause}, which ranks that step together do not make "
            f"(engine.data_parallel_size={config.engine.data_parallel_size}): {instead}"
        )


def _check_monitor(config: RunConfig, age_ms: float) -> None:
    """Check that the load monitor, which reads load reports, does not run more often than they come."""
    look_ms = config.system.instances.monitor_period_ms
    if config.system.elastic and look_ms < age_ms:
        raise UserError(
            f"system.instances.monitor_period_ms={look_ms:g} is shorter than the {age_ms:g} ms between two "
            "load reports, at which the load monitor looks: write a longer one"
        )
