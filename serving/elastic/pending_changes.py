"""What can still come of an elastic controller to which nothing comes from outside any more."""

from serving.elastic.elastic import Elastic

LOOKS = 8  # of the load monitor: where rounds come more often, ticks say little of what it may decide


def change_counts(elastic: Elastic) -> tuple[int, int]:
    """Another one whenever a decision was carried out, or an instance changed."""
    deployment = elastic.deployment
    return len(deployment.log.events), sum(deployment.instances.changes.values())


def expiry_times_ns(elastic: Elastic) -> list[int] | None:
    """When that ends which changes by time alone: copies in host memory, parameters on free GPUs, answers.

    None where the scaler does not say until when its answers hold. What ends first may be in the past. Where
    rounds come between the looks of the load monitor, some of these have to pass.
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
