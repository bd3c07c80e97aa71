"""What the API says of a pod: its address, whether it is ready, and how far its start has come.

Fields: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

# https://kubernetes.io/docs/reference/labels-annotations-taints/#pod-deletion-cost
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
FIRST_TO_GO: Final = "-2147483648"  # the lowest cost that there is
SCHEDULED, CONTAINER, READY = "scheduled_s", "container_s", "pod_ready_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod. ``address``: empty until it has one. ``reached``: seconds of the API's clock from the pod's
    creation to each phase that it is in or past.

    ``going``: it is being deleted. ``marked``: of ready pods it is deleted first.
    ``trouble``: why it does not come further; ``ended``: how its container ended last.
    """

    name: str
    node: str
    address: str
    ready: bool
    going: bool
    marked: bool
    reached: Mapping[str, float]
    trouble: str
    ended: str


def pod_of(data: Mapping[str, Any]) -> Pod:
    """Read a pod. Raises LookupError, TypeError or ValueError if it is none."""
    meta, status = data["metadata"], data.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    containers = status.get("containerStatuses") or ()
    ready = conditions.get("Ready", {}).get("status") == "True"
    return Pod(
        name=str(meta["name"]),
        node=str((data.get("spec") or {}).get("nodeName") or ""),
        address=str(status.get("podIP") or ""),
        ready=ready and bool(status.get("podIP")),
        going="deletionTimestamp" in meta,
        marked=(meta.get("annotations") or {}).get(DELETION_COST) == FIRST_TO_GO,
        reached=_reached(_seconds(meta["creationTimestamp"]), conditions, containers),
        trouble=_trouble(conditions, containers),
        ended=_ended(status, containers),
    )


def _reached(began_s: float, conditions: Mapping[str, Any], containers: Any) -> dict[str, float]:
    times_s = dict[str, float]()
    for phase, kind in ((SCHEDULED, "PodScheduled"), (READY, "Ready")):
        condition = conditions.get(kind, {})
        if condition.get("status") == "True" and condition.get("lastTransitionTime"):
            times_s[phase] = _seconds(condition["lastTransitionTime"]) - began_s
    starts = [(one.get("state") or {}).get("running", {}).get("startedAt") for one in containers]
    if starts and all(starts):
        times_s[CONTAINER] = max(_seconds(start) for start in starts) - began_s
    return times_s


def _trouble(conditions: Mapping[str, Any], containers: Any) -> str:
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return f"it is not scheduled: {_reason(scheduled)}"
    for one in containers:
        waiting = (one.get("state") or {}).get("waiting")
        if waiting:
            return f"its container {one['name']} waits: {_reason(waiting)}"
    if conditions.get("Ready", {}).get("status") == "False":
        return f"it is not ready: {conditions['Ready'].get('message') or 'its readiness probe does not pass'}"
    return ""


def _reason(told: Mapping[str, Any]) -> str:
    words = [str(told[name]) for name in ("reason", "message") if told.get(name)]
    return ": ".join(words) or "no reason is told"


def _ended(status: Mapping[str, Any], containers: Any) -> str:
    for one in containers:
        for state in (one.get("state") or {}, one.get("lastState") or {}):
            if (last := state.get("terminated")) is not None:
                why = f" ({last['reason']})" if last.get("reason") else ""
                return f"its container {one['name']} ended with exit status {last.get('exitCode')}{why}"
    if status.get("phase") == "Failed":  # evicted, for one
        return f"it failed: {_reason(status)}"
    return ""


def pull_s_of(message: str) -> float | None:
    """Return the seconds that an event with the reason Pulled names; 0 for an image that was there."""
    if "already present" in message:
        return 0.0
    found = _PULLED.search(message)
    if found is None:
        return None
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(found[1]))


# Durations as Go prints them: 1m2.5s, 850ms.
_PULLED: Final = re.compile(r"^Successfully pulled image .*? in ((?:[\d.]+(?:h|ms|m|s|µs|ns))+)")
_PART: Final = re.compile(r"([\d.]+)(h|ms|m|s|µs|ns)")
_UNITS_S: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


def _seconds(stamp: str) -> float:
    """RFC 3339, of the API server's or the node's clock, in whole seconds."""
    return datetime.fromisoformat(stamp).timestamp()
