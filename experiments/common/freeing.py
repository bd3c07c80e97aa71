"""How long instances that are to go keep their GPUs."""

from collections.abc import Mapping
from typing import Any


def freeing_s(summary: Mapping[str, Any]) -> list[float]:
    """From every decision that an instance goes until its GPUs are free; one that stays, or is lost, does not
    count.
    """
    began, found = dict[int, float](), list[float]()
    for event in summary.get("scale_events") or ():
        replica = event["replica"]
        if event["act"] == "drain":
            began[replica] = event["t_s"]
        elif event["act"] in ("cancel_drain", "released", "lost") and replica in began:
            since_s = began.pop(replica)
            if event["act"] == "released":
                found.append(event["t_s"] - since_s)
    return found
