"""A worker process on a node of a Ray cluster, as the driver sees it."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from realexec.launchers.ray_seat import Look, Where

# An actor answers in well under a millisecond; one that does not for so long is not waited for.
ANSWER_S: Final = 1.0
_PAUSE_S: Final = 0.05
NO_ANSWER: Final = "its node does not answer"


class RayProcess:
    """``seat``: the actor that started it. ``node_lost``: why its node is gone, None while it is there."""

    def __init__(
        self, seat: Any, pid: int, where: Where, far_clock: bool, node_lost: Callable[[], str | None]
    ) -> None:
        self.pid, self.where, self.far_clock = pid, where, far_clock
        self._seat, self._node_lost = seat, node_lost
        self._asked: Any = None  # a look that the seat was asked for, and has not told of yet
        self._seen: Look | None = None  # the last one it told of since anybody asked
        self._cpu_ns = 0
        self._seat_lost: str | None = None

    def ended(self) -> str | None:
        """By the seat's last look, which may be of a moment ago."""
        self._ask()
        return self._seat_lost if self._seen is None else self._seen.ended

    def end_within(self, seconds: float) -> str | None:
        """The seat tells; where it is gone itself, whether that is because its node is."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            cause = self._node_lost() or self.ended()
            if cause is not None:
                return cause
            time.sleep(_PAUSE_S)
        return None

    def cut_off(self) -> str | None:
        """By the cluster's list of its nodes."""
        return self._node_lost()

    def ran(self) -> bool:
        """By the looks that the seat told of since the last call: none where its node does not answer."""
        self._ask()
        seen, self._seen = self._seen, None
        return seen is not None and seen.ran

    def silence(self) -> str:
        """What the seat says of it, if that one answers."""
        with suppress(Exception):
            return self._look_now().silence
        return NO_ANSWER

    def cpu_ns(self) -> int:
        """By the account of its host; 0 where that does not answer."""
        with suppress(Exception):
            return self._look_now().cpu_ns
        return 0

    def kill(self) -> None:
        """By its seat."""
        with suppress(Exception):
            self._seat.kill.remote()

    def close(self) -> None:
        """Where the node does not answer, Ray ends the seat with the driver, and the process goes with it."""
        import ray

        with suppress(Exception):
            ray.get(self._seat.close.remote(), timeout=ANSWER_S)

    def _look_now(self) -> Look:
        import ray

        return Look(*ray.get(self._seat.look.remote(), timeout=ANSWER_S))

    def _ask(self) -> None:
        """Take the answer if there is one, and have another question under way."""
        import ray

        if self._seat_lost is not None:
            return
        if self._asked is not None:
            if not ray.wait([self._asked], timeout=0)[0]:
                return
            asked, self._asked = self._asked, None
            try:
                self._seen = Look(*ray.get(asked))
            except ray.exceptions.RayError as error:
                self._seat_lost = self._node_lost() or f"its Ray actor is gone ({first_line(error)})"
                return
        self._asked = self._seat.look.remote()


def first_line(error: Exception) -> str:
    """The first line of an error that says something, as part of a sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
