"""A global scheduler that is told of steps, without a cluster: what its decisions cost by what it is told."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from policies.llumnix.dispatch import Freeness
from policies.llumnix.migration import Llumnix
from serving.protocols.load_report import LoadReport
from serving.vocabulary.request import Request

_MODEL: Final = "llama_7b"
_BLOCK_TOKENS: Final = 16
_LONGEST: Final = 512  # tokens at which a request of the bench begins anew
_STEPS_PER_REQUEST: Final = 8  # steps of instances between two arrivals
_ROUND: Final = 4  # reports of every instance between two pairings, as the artefact has it


class Reported:
    """The last report of every instance, and which are new: what dispatch and migration see."""

    model = _MODEL
    now_ns = 0
    round = 0  # each pairs: rounds=1
    head_tokens = 0  # instances do both roles
    nearly_full: Sequence[int] = ()  # only the periods of a monitor name one
    leaving: Sequence[int] = ()
    loading: Sequence[int] = ()

    def __init__(self, instances: int, beside: "Reported | None" = None) -> None:
        """``beside``: what is told is told to it, too."""
        self.replicas = instances
        self.taking: Sequence[int] = range(instances)
        self._reports: dict[int, LoadReport] = {} if beside is None else beside._reports
        self._changed: dict[int, None] = {}
        self._readers: list[dict[int, None]] = [self._changed] if beside is None else beside._readers
        if beside is not None:
            self._readers.append(self._changed)

    def tell(self, replica: int, report: LoadReport) -> None:
        """A new report."""
        self._reports[replica] = report
        for unread in self._readers:
            unread[replica] = None

    def report(self, replica: int) -> LoadReport | None:
        """The last one."""
        return self._reports.get(replica)

    def newly_reported(self) -> Sequence[int]:
        """Since this was last asked."""
        found = list(self._changed)
        self._changed.clear()
        return found

    def short(self) -> Sequence[int]:
        """All: the bench keeps no book of who surely has memory."""
        return self.taking

    def engaged(self, replica: int) -> bool:
        """Nobody migrates in the bench: what is paired is thrown away."""
        return False

    def load(self, replica: int, signal: Literal["outstanding", "kv_demand"]) -> int:
        """Policies that read reports do not look at it."""
        return 0

    def free_blocks(self, replica: int) -> int | None:
        """As ``load``."""
        return None

    def kv_demands(self, replica: int) -> Mapping[int, int]:
        """As ``load``."""
        return {}

    def kv_tokens(self, replica: int) -> int:
        """As ``load``."""
        return 0


class TwoLevel:
    """Reports come made; the scheduler dispatches and pairs by them.

    ``running`` requests of each instance grow by a token a step and begin anew when they are long.
    """

    def __init__(self, instances: int, running: int) -> None:
        self._instances, self._running = instances, running
        self._view = Reported(instances)
        self._to_pair = Reported(instances, self._view)
        self._dispatch, self._migration = Freeness(), Llumnix(rounds=1)
        self._step = 0
        for replica in range(instances):
            self.told(replica)

    def run(self, steps: int) -> None:
        """So many steps, of one instance after the other."""
        for _ in range(steps):
            self._step += 1
            self.told(self._step % self._instances)
            if not self._step % _STEPS_PER_REQUEST:
                self._dispatch.dispatch(Request(self._step, 0, 64, 64, _MODEL), self._view)  # type: ignore[arg-type]
            if not self._step % (_ROUND * self._instances):
                self._migration.pair(self._to_pair)

    def told(self, replica: int) -> None:
        """One report, whose size does not depend on what runs."""
        blocks = self._running * (1 + (self._step + 7 * replica) % _LONGEST // _BLOCK_TOKENS)
        self._view.tell(replica, self._report(blocks))

    def _report(self, used_blocks: int) -> LoadReport:
        total = self._running * _LONGEST // _BLOCK_TOKENS
        return LoadReport(total, total // 100, _BLOCK_TOKENS, total - used_blocks, self._running, 0, 0, 0, 0)


class Central(TwoLevel):
    """At every step it is told of every running request, keeps their lengths and sums up their blocks."""

    def __init__(self, instances: int, running: int) -> None:
        self._tokens = [
            {request: request * _LONGEST // running for request in range(running)} for _ in range(instances)
        ]
        super().__init__(instances, running)

    def told(self, replica: int) -> None:
        """A new token of each."""
        tokens, used_blocks = self._tokens[replica], 0
        for request, length in tokens.items():
            length = 1 if length >= _LONGEST else length + 1
            tokens[request] = length
            used_blocks += -(-length // _BLOCK_TOKENS)
        self._view.tell(replica, self._report(used_blocks))
