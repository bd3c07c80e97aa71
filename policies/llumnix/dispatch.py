"""Dispatch to the freest instance, by load reports: Llumnix's, and INFaaS++'s without migration."""

from math import inf
from typing import Final

from policies.llumnix.freeness import dispatch_rule
from policies.llumnix.freest_first import FreestFirst
from serving.engine.fleet import FleetView
from serving.vocabulary.request import Request

REPORTS_AT: Final = ("step_ends", "changes", "ticks")


class Freeness:
    """The freest instance by its last load report; on a tie the lowest id.

    ``rule``: ``shipped`` or ``paper`` (``policies.llumnix.freeness``). Reports are at most ``reports_age_ms``
    old. ``reports_at``: ``step_ends``: an instance reports at the end of a step its state at the step's
    start, so that all requests that arrive in between go to the same instance (the artefact). ``changes``:
    arrivals and changes of a batch count at once. ``ticks``: an instance reports its present state every
    ``reports_age_ms`` only. None: ``step_ends``, but ``changes`` if an engine chooses a step while the
    previous one runs. Between these an instance only gets fuller, so only the top of a heap of the last
    reports is read again.

    ``high_priority_target_tokens``: how much an instance with high-priority requests should hold at most;
    None: all requests are treated alike.
    """

    reads_load_reports = True

    def __init__(
        self,
        rule: str = "shipped",
        reports_age_ms: float = 50.0,
        reports_at: str | None = None,
        high_priority_target_tokens: int | None = None,
    ) -> None:
        if not 0 < reports_age_ms < inf:
            raise ValueError(f"reports_age_ms must be finite and above 0, not {reports_age_ms}")
        if reports_at is not None and reports_at not in REPORTS_AT:
            raise ValueError(f"reports_at must be one of {', '.join(REPORTS_AT)}, not {reports_at}")
        self.reports_age_ms, self.reports_at = reports_age_ms, reports_at
        target_tokens = high_priority_target_tokens
        classes = (False,) if target_tokens is None else (False, True)
        self._rules = [dispatch_rule(rule, target_tokens, high) for high in classes]
        self._orders: dict[str, list[FreestFirst]] = {}

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """The freest instance; the reason states its freeness."""
        orders = self._orders.get(request.model)
        if orders is None:
            orders = self._orders[request.model] = [FreestFirst(rule) for rule in self._rules]
        order = orders[0]
        if len(orders) > 1:
            newly = fleet.newly_reported()
            for heap in orders:
                heap.note(newly, fleet)
            order = orders[request.priority > 0]
        load, replica, report = order.first(fleet)
        if load == -inf:
            return replica, "it has no requests"
        return replica, f"freeness {-load:.1f}, {report.running} running, {report.waiting} waiting"
