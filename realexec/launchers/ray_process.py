"""A worker process on a node of a Ray cluster, as the driver sees it."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from realexec.launchers.ray_actor import Look, Where

# Timeout for an actor's answer, in seconds; an actor normally answers in well under a millisecond.
ANSWER_S: Final = 1.0
_PAUSE_S: Final = 0.05
NO_ANSWER: Final = "its node does not answer"


class ActorLooks:
    """Asks an actor for its ``look`` again and again, once at a time. ``node_lost``: why its node is lost.

    ``lost``: why it answers no more; None while it may.
    """

    def __init__(self, actor: Any, node_lost: Callable[[], str | None]) -> None:
        self._actor, self._node_lost = actor, node_lost
        self._asked: Any = None  # the pending request; the actor has not answered it yet
        self.lost: str | None = None

    def next(self) -> Any | None:
        """Return the answer that has come since the last call, and send the next request. Does not block."""
        import ray

        answer = None
        if self.lost is not None:
            return None
        if self._asked is not None:
            if not ray.wait([self._asked], timeout=0)[0]:
                return None
            request, self._asked = self._asked, None
            try:
                answer = ray.get(request)
            except ray.exceptions.RayError as error:
                self.lost = self._node_lost() or f"its Ray actor is gone ({first_line(error)})"
                return None
        self._asked = self._actor.look.remote()
        return answer


class RayProcess:
    """The driver's handle. ``actor``: the actor that started it. ``node_lost``: why its node is lost."""

    def __init__(
        self, actor: Any, pid: int, where: Where, remote_clock: bool, node_lost: Callable[[], str | None]
    ) -> None:
        self.pid, self.where, self.remote_clock = pid, where, remote_clock
        self._actor, self._node_lost = actor, node_lost
        self._looks = ActorLooks(actor, node_lost)
        self._seen: Look | None = None  # the actor's latest answer since the last call of `ran`
        self._cpu_ns = 0

    def ended(self) -> str | None:
        """Return how it ended, by the actor's latest look, which may be a moment old."""
        self._ask()
        return self._looks.lost if self._seen is None else self._seen.ended

    def end_within(self, seconds: float) -> str | None:
        """Wait for the actor to report the end, or for the loss of its node or of the actor itself."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            cause = self._node_lost() or self.ended()
            if cause is not None:
                return cause
            time.sleep(_PAUSE_S)
        return None

    def cut_off(self) -> str | None:
        """Return why the worker's node is lost, by the cluster's list of nodes."""
        return self._node_lost()

    def ran(self) -> bool:
        """Whether the actor reported since the last call that it ran; False if its node does not answer."""
        self._ask()
        seen, self._seen = self._seen, None
        return seen is not None and seen.ran

    def silence(self) -> str:
        """Return the actor's reason for the silence, or that its node does not answer."""
        with suppress(Exception):
            return self._look_now().silence
        return NO_ANSWER

    def cpu_ns(self) -> int:
        """Return the CPU time in ns that its host reports; 0 if the host does not answer."""
        with suppress(Exception):
            return self._look_now().cpu_ns
        return 0

    def kill(self) -> None:
        """Send a kill request to the actor. Does not block."""
        with suppress(Exception):
            self._actor.kill.remote()

    def close(self) -> None:
        """End it through its actor. If the node does not answer, Ray ends both with the driver."""
        import ray

        with suppress(Exception):
            ray.get(self._actor.close.remote(), timeout=ANSWER_S)

    def _look_now(self) -> Look:
        import ray

        return Look(*ray.get(self._actor.look.remote(), timeout=ANSWER_S))

    def _ask(self) -> None:
        """Store the actor's answer if it has arrived, and send the next request."""
        answer = self._looks.next()
        if answer is not None:
            self._seen = Look(*answer)


def first_line(error: Exception) -> str:
    """Return an error's first line that is not blank, without its full stop."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
