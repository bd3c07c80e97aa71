"""What is kept about models without a turn at a look of the load monitor, held against a look at all."""

from typing import Any

from serving.controller import Controller
from serving.elastic.elastic import Elastic


def check_looks(controller: Controller) -> None:
    """Offers are as if asked now; who has no turn at the next look would change nothing."""
    elastic: Any = controller.elastic
    if not isinstance(elastic, Elastic):
        return
    now_ns = controller._present.now_ns
    told: Any = elastic
    told._note()
    offers = told._offers
    offers._refresh(now_ns)
    offered = {}
    for model in controller.services:
        service = controller.services[model]
        instances = elastic.deployment.instances.of(model)
        if any(one.state == "serving" and not service.outstanding(one.replica.id) for one in instances):
            offer = offers._arbiter.offer(elastic.view(now_ns, model))
            if offer is not None:
                offered[model] = offer
    assert offers._offers == offered
    assert offers.best(now_ns, "") == min(offered.values(), default=None)
    for model in elastic.looks.active - elastic.looks.changed:
        changes, service = elastic.deployment.instances.changes[model], controller.services[model]
        last = elastic.answers.last(model)
        assert last is not None and model not in told._shortage.starved, model
        holds = elastic.answers.holds(last.until_ns - 1, model, changes, service, lambda: False)
        assert holds, f"{model} has changed, and has no turn"
        assert (model in told._shortage.short) == last.short
        assert last.until_ns <= elastic.looks._entered[model]  # type: ignore[operator]
