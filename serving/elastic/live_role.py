"""The load monitor's view of one role of a model, read from live data at each access and never copied."""

from serving.elastic.instances import Instances
from serving.engine.load_reports import LoadReports
from serving.protocols.scaling import InstanceState, InstanceView
from serving.services.service import Service
from serving.vocabulary.replica import Role


class LiveRole:
    """serving.protocols.scaling.RoleView of one role of one model."""

    __slots__ = (
        "_instances", "_last_ran_ns", "_model", "_reports", "_service", "maximum", "minimum", "role",
    )  # fmt: skip

    def __init__(
        self,
        model: str,
        role: Role,
        *,
        bounds: tuple[int, int],
        instances: Instances,
        service: Service,
        last_ran_ns: dict[int, int],
        reports: LoadReports | None = None,
    ) -> None:
        """``bounds``: the fewest and the most instances. ``last_ran_ns``: when each replica last reported.

        ``reports``: the load reports of the model's instances, if a policy reads them.
        """
        self.role = role
        self.minimum, self.maximum = bounds
        self._model = model
        self._instances = instances
        self._service = service
        self._last_ran_ns = last_ran_ns
        self._reports = reports

    @property
    def supply(self) -> int:
        """Number of instances that serve or load."""
        return self._instances.supply(self._model, self.role)

    def in_state(self, state: InstanceState) -> list[InstanceView]:
        """The instances in this state, by id."""
        views = []
        for instance in self._instances.of(self._model, self.role):
            if instance.state == state:
                number = instance.replica.id
                outstanding = self._service.outstanding(number)
                idle_since_ns = None if outstanding else self._last_ran_ns.get(number, 0)
                report = None if self._reports is None else self._reports.of(number)
                views.append(InstanceView(number, state, outstanding, idle_since_ns, report))
        return views
