"""What can still change in an elastic controller that receives no more events from outside."""

from serving.elastic.elastic import Elastic

LOOKS = 8  # looks of the load monitor: if rounds are more frequent, ticks say little about its decisions


def change_counts(elastic: Elastic) -> tuple[int, int]:
    """Counts that change whenever a decision is carried out or an instance changes."""
    deployment = elastic.deployment
    return len(deployment.log.events), sum(deployment.instances.changes.values())


def expiry_times_ns(elastic: Elastic) -> list[int] | None:
    """When time-limited states end: copies in host memory, parameters on free GPUs, answers of the scaler.

    None if the scaler does not say until when its answers hold. The first of these times may be in the past.
    If rounds come between the looks of the load monitor, several rounds have to pass.
    """
    answers_ns = elastic.answers.until_ns()
    if answers_ns is None:
        return None
    deployment = elastic.deployment
    return [
        *answers_ns,
        *deployment.checked_copies.caches.expiries_ns(),
        *deployment.instances.parked_until_ns(),
        elastic.ticks.settled_ns(LOOKS),
    ]
