"""A dispatch policy that sends every request to the first instance, so that something must move."""

from serving.engine.fleet import FleetView
from serving.vocabulary.request import Request


class FirstOnly:
    """Instances beside it have nothing to do."""

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """The lowest number."""
        return fleet.replica_at(0), "the first"


class FirstButTwo:
    """The first two requests go to the second instance: they are left if the first is lost."""

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """All come before anything is lost."""
        return fleet.replica_at(1 if request.id < 2 else 0), "the first, but for two"
