"""What a run lost, and the time until as many instances served again."""

from collections.abc import Sequence
from typing import Any

from hwmodels.topology.cables import cables_of
from serving.controller import Controller
from serving.elastic.elastic import Elastic
from serving.vocabulary.actions import Action
from serving.vocabulary.events import Event, LossNotice, Lost
from serving.vocabulary.units import NS_PER_S
from simcore.faults.plan import Fault, FaultPlan, Loss


class RecoveryWatch:
    """Wraps a controller to count its serving instances after a loss (a ``Control``).

    ``recovered_ns``: time of a loss -> when as many served again, the loss's own time if as many still did;
    None: they never did.
    """

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.elastic, self.step_counts = controller.elastic, controller.step_counts
        self._before: dict[int, int] = {}  # time of a loss -> instances that served before it
        self.recovered_ns: dict[int, int | None] = {}

    def handle(self, now_ns: int, event: Event) -> Sequence[Action]:
        """Forward the event; return the controller's actions."""
        # All losses of one moment have been applied when the next event arrives. If the number of serving
        # instances is then as before the losses, recovery is dated at the loss, because the time of the next
        # event depends on the driver.
        self._recover(now_ns, at_the_loss=True)
        if type(event) in (Lost, LossNotice):
            at_ns = event.at_ns if isinstance(event, LossNotice) else now_ns
            if at_ns not in self.recovered_ns:
                self._before[at_ns], self.recovered_ns[at_ns] = self._serving(), None
        actions = self._controller.handle(now_ns, event)
        self._recover(now_ns)
        return actions

    def _recover(self, now_ns: int, at_the_loss: bool = False) -> None:
        """Note the recovery from earlier losses if as many instances serve now as before them."""
        past = [at_ns for at_ns in self._before if at_ns < now_ns]
        if not past:
            return
        serving = self._serving()
        for at_ns in past:
            if serving >= self._before[at_ns]:
                del self._before[at_ns]
                self.recovered_ns[at_ns] = at_ns if at_the_loss else now_ns

    def _serving(self) -> int:
        if not isinstance(self.elastic, Elastic):
            return 1 << 30  # a static system replaces none: it never recovers
        instances = self.elastic.deployment.instances.live.values()
        return sum(instance.state == "serving" for instance in instances)


def faults_section(
    losses: Sequence[Loss], watch: RecoveryWatch, plan: FaultPlan, end_s: float
) -> dict[str, Any]:
    """Return every fault, by time, with what was lost and when it was made up for.

    That is when as many instances served as before it, or when the global scheduler worked again. A fault of
    a finite plan that comes after the run's end lost nothing.
    """
    elastic = isinstance(watch.elastic, Elastic)
    rows = []
    for loss in losses:
        recovered_ns = watch.recovered_ns.get(loss.at_ns) if loss.replicas and elastic else loss.back_ns
        rows.append(
            {
                "at_s": loss.at_ns / NS_PER_S,
                "what": loss.what,
                "which": loss.which,
                "replicas": list(loss.replicas),
                "nothing": loss.nothing,
                "recovered_s": None if recovered_ns is None else (recovered_ns - loss.at_ns) / NS_PER_S,
            }
        )
    happened = {(loss.at_ns, loss.what) for loss in losses}
    later = plan.faults if isinstance(plan.faults, Sequence) else ()
    rows += [
        _after_the_end(fault, plan, end_s) for fault in later if (fault.at_ns, fault.what) not in happened
    ]
    return {"faults": rows}


def _after_the_end(fault: Fault, plan: FaultPlan, end_s: float) -> dict[str, Any]:
    which = "" if fault.number is None else str(fault.number)
    if fault.what == "link" and fault.number is not None and plan.topology is not None:
        which = cables_of(plan.topology)[fault.number].name
    return {
        "at_s": fault.at_ns / NS_PER_S,
        "what": fault.what,
        "which": which,
        "replicas": [],
        "nothing": f"the run had ended after {end_s:.3f} s",
        "recovered_s": None,
    }
