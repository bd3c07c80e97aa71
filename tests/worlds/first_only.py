"""A dispatch policy that sends every request to the first instance, so that something must move."""

from serving.engine.fleet import FleetView
from serving.vocabulary.request import Request


class FirstOnly:
    """Instances beside it have nothing to do."""

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """The lowest number."""
        return fleet.replica_at(0), "the first"
