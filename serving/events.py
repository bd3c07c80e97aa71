"""Events are facts a world reports to the controller. Frozen, and complete enough to be replayed."""

from serving.fact import fact
from serving.request import Request


@fact
class Arrived:
    """A request reached the front door."""

    request: Request


@fact
class Ran:
    """A replica stopped at a step boundary.

    ``steps`` says how many steps really ran (an interrupted run reports fewer than it was allowed; a run
    cancelled before its first step reports 0). ``finished`` lists the requests that produced their last
    token in the last of these steps, ascending. ``epoch`` is the epoch of the ``Run`` it answers.
    """

    replica: int
    epoch: int
    steps: int
    finished: tuple[int, ...]


@fact
class Lost:
    """A replica is gone (its process died, its host failed): nothing it held exists any more."""

    replica: int
    cause: str


Event = Arrived | Ran | Lost
