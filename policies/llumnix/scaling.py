"""Llumnix's auto-scaling: adds and removes instances so that their average freeness stays in a band."""

from collections.abc import Sequence
from math import ceil, inf

from policies.llumnix.freeness import check_rule, paper
from serving.protocols.load_report import LoadReport
from serving.protocols.scaling import InstanceView, RoleView, ScaleDecision, ScalingView
from serving.vocabulary.units import NS_PER_S

_HOUR_NS = 3600 * NS_PER_S


class FreenessBand:
    """Add empty instances until the average is above ``low``; remove one above ``low + width``.

    ``rule``: ``shipped`` counts free blocks per request of all instances together. Before it removes an
    instance, that of the highest id, it leaves out that instance's room. It decides nothing more while new
    instances load. ``paper``: the mean of the instances' freeness in iterations; the instance with the fewest
    running requests is removed. A draining instance is kept before another one is loaded; one drains at a
    time. ``first_look_s``: no decision before that time (the artefact waits for 110 s).
    """

    reads_load_reports = True

    def __init__(
        self, rule: str = "shipped", low: float = 10.0, width: float = 50.0, first_look_s: float = 0.0
    ) -> None:
        check_rule(rule)
        for name, number in (("low", low), ("width", width), ("first_look_s", first_look_s)):
            if not 0 <= number < inf:
                raise ValueError(f"{name} must be finite and at least 0, not {number}")
        self._shipped, self._low, self._high = rule == "shipped", low, low + width
        self._first_ns = round(first_look_s * NS_PER_S)

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        """Decisions that bring the average back into the band."""
        (role,) = view.roles  # instances with load reports prefill and decode
        least = max(role.minimum, int(view.has_work))
        if role.supply < least:
            why = f"{role.supply} instances are fewer than {least}"
            return _start_decisions(view, role, least - role.supply, why)
        if view.now_ns < self._first_ns:
            return ()
        serving, draining = role.in_state("serving"), role.in_state("draining")
        wanted, why = self._wanted(serving, draining)
        if wanted:
            if role.in_state("loading") or role.supply >= role.maximum:
                return ()
            return _start_decisions(view, role, min(wanted, role.maximum - role.supply), why)
        if draining or role.supply <= role.minimum or not serving:
            return ()
        return self._drain_decisions(view, role, serving)

    def no_change_until_ns(self, view: ScalingView) -> int:
        """Freeness changes while requests decode; that of empty instances does not."""
        instances = [instance for role in view.roles for instance in role.in_state("serving")]
        changing = any(instance.outstanding for instance in instances) or view.now_ns < self._first_ns
        return view.now_ns if changing or not instances else view.now_ns + _HOUR_NS

    def _wanted(self, serving: Sequence[InstanceView], draining: Sequence[InstanceView]) -> tuple[int, str]:
        """How many more empty instances lift the average to ``low``, and why."""
        reports, leaving = _reports(serving), _reports(draining) if self._shipped else []
        if not reports:
            return 0, ""
        report = reports[0]
        if not self._shipped:
            of_each = [paper(report) for report in reports]
            room = report.total_blocks * report.block_tokens
            freeness = sum([min(free, room) for free in of_each]) / len(of_each)
            lacking = ceil((self._low - freeness) * len(of_each) / max(1.0, room - self._low))
        else:
            blocks = sum([_free(report) for report in (*reports, *leaving)])
            requests = sum([report.running for report in reports]) + len(leaving)
            requests += sum([report.waiting for report in (*reports, *leaving)])
            freeness = blocks / requests if requests else inf
            lacking = ceil((self._low * requests - blocks) / report.total_blocks)
        if freeness >= self._low:
            return 0, ""
        return max(1, lacking), f"average freeness {freeness:.1f} is below {self._low:g}"

    def _drain_decisions(
        self, view: ScalingView, role: RoleView, serving: Sequence[InstanceView]
    ) -> tuple[ScaleDecision, ...]:
        reported = [instance for instance in serving if instance.report is not None]
        if not reported:
            return ()
        if self._shipped:
            goes = reported[-1]
            freeness = _freeness_without(_reports(reported))
        else:
            goes = min(
                reported,
                key=lambda instance: (instance.report.running if instance.report else 0, -instance.id),
            )
            reports = _reports(reported)
            rooms = [report.total_blocks * report.block_tokens for report in reports]
            freeness = sum([min(paper(report), room) for report, room in zip(reports, rooms)]) / len(reports)
        if freeness <= self._high:
            return ()
        why = f"average freeness {freeness:.1f} is above {self._high:g}"
        return (
            ScaleDecision(
                act="drain", model=view.model, role=role.role, count=1, instances=(goes.id,), reason=why
            ),
        )


def _reports(instances: Sequence[InstanceView]) -> list[LoadReport]:
    return [instance.report for instance in instances if instance.report is not None]


def _free(report: LoadReport) -> float:
    """Blocks that are free once all waiting requests have theirs."""
    demand = report.waiting_tokens / report.block_tokens
    return report.free_blocks - report.watermark_blocks - demand


def _freeness_without(reports: Sequence[LoadReport]) -> float:
    """Free blocks per request if the last instance's requests were on the others.

    Its waiting requests count as one request, with their whole demand.
    """
    last, others = reports[-1], reports[:-1]
    free = sum([report.free_blocks for report in reports]) - last.total_blocks
    demand = sum([report.waiting_tokens / report.block_tokens for report in reports])
    available = max(0, free) - sum([report.watermark_blocks for report in others]) - demand
    requests = sum([report.running for report in reports]) + int(any(report.waiting for report in reports))
    return available / requests if requests else inf


def _start_decisions(view: ScalingView, role: RoleView, count: int, why: str) -> tuple[ScaleDecision, ...]:
    """Resume a draining instance; else revive those with parameters still on their GPUs, then load others."""
    draining = role.in_state("draining")
    if draining:
        return (
            ScaleDecision(
                act="cancel_drain",
                model=view.model,
                role=role.role,
                count=1,
                instances=(draining[0].id,),
                reason=why,
            ),
        )
    decisions = list[ScaleDecision]()
    parked = view.parked[:count]
    if parked:
        decisions.append(
            ScaleDecision(
                act="revive",
                model=view.model,
                role=role.role,
                count=len(parked),
                instances=parked,
                reason=why,
            )
        )
    loads = min(count - len(parked), view.spare)
    if loads > 0:
        decisions.append(
            ScaleDecision(act="load", model=view.model, role=role.role, count=loads, instances=(), reason=why)
        )
    if (short := count - len(parked) - max(0, loads)) > 0:
        decisions.append(
            ScaleDecision(
                act="shortage", model=view.model, role=role.role, count=short, instances=(), reason=why
            )
        )
    return tuple(decisions)
