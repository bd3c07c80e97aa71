"""Records where each request's computation begins: after the tokens cached at its first admission."""

from array import array
from collections.abc import Sequence

from serving.vocabulary.actions import Action, Run
from serving.vocabulary.driver import JournalSink
from serving.vocabulary.events import Event


class ChunkStarts:
    """Implements serving.vocabulary.driver.JournalSink, and forwards to ``journal``.

    ``starts``: (request, start) of every prompt chunk, by time.
    """

    __slots__ = ("_journal", "starts")

    def __init__(self, journal: JournalSink | None = None) -> None:
        self.starts = array("q")
        self._journal = journal

    def write(self, now_ns: int, event: Event, actions: Sequence[Action], told: Sequence[int] = ()) -> None:
        """Write one event and its answer."""
        if self._journal is not None:
            self._journal.write(now_ns, event, actions, told)
        for action in actions:
            if type(action) is Run:
                for request, start, _ in action.chunks:
                    self.starts.append(request)
                    self.starts.append(start)
