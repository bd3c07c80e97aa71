"""Migration of running requests: what a policy sees and answers, and how its answers are checked.

Two levels, as in Llumnix. Once per period the policy pairs instances by what it knows of all of them. It
chooses the request that leaves a source when that instance is between two steps, so contexts are exact.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

from serving.protocols.load_report import LoadReport
from serving.protocols.policy_faults import Question, ask, refused, wrong_reason

NEVER_NS: Final = 1 << 62


class Pair(NamedTuple):
    """A move of a request between two instances.

    ``source``, ``destination``: their numbers.
    """

    source: int
    destination: int
    reason: str


class InstancesView(Protocol):
    """The instances of one model; of a split system its decode instances.

    ``round``: periods that have ended. ``taking``: instances that take requests, ascending. ``loading``:
    those that will, once they have their parameters; only destinations. ``leaving``: those that take no
    requests and still have some. ``head_tokens``: room that the first computed prompt waiting for a decode
    instance takes; 0: none waits. ``nearly_full``: empty once per period; else the instance whose memory is
    nearly full, and ``migration.victims`` is asked about it alone.
    """

    model: str
    nearly_full: Sequence[int]

    @property
    def head_tokens(self) -> int: ...

    @property
    def round(self) -> int: ...

    @property
    def now_ns(self) -> int: ...

    @property
    def taking(self) -> Sequence[int]: ...

    @property
    def loading(self) -> Sequence[int]: ...

    @property
    def leaving(self) -> Sequence[int]: ...

    def short(self) -> Sequence[int]:
        """For policies with ``ample_blocks``: all other taking instances have that many blocks free."""

    def newly_reported(self) -> Sequence[int]:
        """Instances with a new load report since the last call; others have only less memory free."""

    def load(self, replica: int, signal: Literal["outstanding", "kv_demand"]) -> int:
        """The instance's load, as dispatchers see it."""

    def report(self, replica: int) -> LoadReport | None:
        """Its last load report, for policies with ``reads_load_reports``; None: the instance is lost."""

    def free_blocks(self, replica: int) -> int | None:
        """Free blocks that no request waits for, by its last load report; None: no policy reads reports."""

    def kv_demands(self, replica: int) -> Mapping[int, int]:
        """By request on the instance, ascending: its part in that load. Some may not be decoding now."""

    def prompt_tokens(self, replica: int) -> int:
        """Prompt tokens of its requests that run; of a decode instance, also of those on their way."""

    def kv_tokens(self, replica: int) -> int:
        """KV positions that its memory holds."""

    def engaged(self, replica: int) -> bool:
        """Whether a migration from or to it is under way: then no other can begin."""


class SourceView(Protocol):
    """One source instance between two steps.

    ``destination``: the pair's destination.
    """

    replica: int
    destination: int

    def decoding(self) -> Iterable[int]:
        """The requests that decode there and could leave, in order of admission."""

    def context_tokens(self, request: int) -> int:
        """The request's prompt tokens and generated tokens."""

    def priority(self, request: int) -> int:
        """The request's priority."""

    def arrival_ns(self, request: int) -> int:
        """The request's arrival time."""

    def report(self, replica: int) -> LoadReport | None:
        """The instance's load report, as in ``InstancesView``."""


class Migrator(Protocol):
    """Decides which running requests move, and to which instances.

    It may have ``rounds``, an int: it pairs only in every such round. With ``for_head`` True it pairs only to
    make room for ``head_tokens`` or to empty leaving instances. With ``ample_blocks(report)``, an int, an
    instance with at least that many free blocks cannot be a source, and ``short`` names the others.
    """

    # Rounds in which nothing else happens are skipped. ample_blocks is not asked again for a report of the
    # same instance that differs only in its free blocks.

    def pair(self, view: InstancesView) -> Sequence[Pair]:
        """Asked once per period: each instance in at most one pair, none that is engaged."""

    def choose(self, view: SourceView) -> tuple[int, str] | None:
        """Asked when the source of a pair is between two steps: the request that leaves it; None: none."""


PAIR: Final = Question(
    "pair",
    "a tuple or list of serving.protocols.migration.Pair(source, destination, reason): two instances in no "
    "other pair and no migration, a destination that accepts requests, and a reason that is not empty",
)
AMPLE: Final = Question("ample_blocks", "a number of blocks, an int")
CHOOSE: Final = Question(
    "choose",
    "None, or a tuple (request, reason): a request that decodes on the source, and a str that is not empty",
)


def paired(policy: Any, view: InstancesView) -> Sequence[Pair]:
    """Return the pairs of this period. Raises PolicyError."""
    answer = ask(policy, PAIR, view)
    if type(answer) not in (tuple, list):
        raise refused(policy, PAIR, answer, "the answer is neither a tuple nor a list")
    pairs, used = list[Pair](), set[int]()
    taking = view.taking if answer else ()  # no set: few pairs, maybe many instances
    for pair in answer:
        why = _wrong_pair(pair, taking, used, view)
        if why:
            raise refused(policy, PAIR, pair, why)
        pairs.append(pair)
        used.update((pair.source, pair.destination))
    return pairs


def _wrong_pair(pair: Any, taking: Sequence[int], used: set[int], view: InstancesView) -> str | None:
    if type(pair) is not Pair or type(pair.source) is not int or type(pair.destination) is not int:
        return "the entry is not a Pair of two instances"
    if not _among(taking, pair.source) and pair.source not in view.leaving:
        return f"instance {pair.source} has no requests of {view.model}"
    takes = _among(taking, pair.destination) or pair.destination in view.loading
    if not takes or pair.source == pair.destination:
        return f"instance {pair.destination} is the source itself or does not accept requests of {view.model}"
    for end in (pair.source, pair.destination):
        if end in used or view.engaged(end):
            return f"instance {end} is already in another pair or migration"
    return None if type(pair.reason) is str and pair.reason else wrong_reason(pair.reason)


def _among(ascending: Sequence[int], replica: int) -> bool:
    place = bisect_left(ascending, replica)
    return place < len(ascending) and ascending[place] == replica


def ample_blocks(policy: Any, report: LoadReport) -> int:
    """Return the number of free blocks with which an instance is no source. Raises PolicyError."""
    answer = ask(policy, AMPLE, report)
    if type(answer) is not int:
        raise refused(policy, AMPLE, answer, "the answer is not a number of blocks")
    return answer


def chosen_request(policy: Any, view: SourceView) -> tuple[int, str] | None:
    """Return the request that leaves and the reason, or None. Raises PolicyError."""
    answer = ask(policy, CHOOSE, view)
    if answer is None:
        return None
    if type(answer) is not tuple or len(answer) != 2 or type(answer[0]) is not int:
        raise refused(policy, CHOOSE, answer, "the answer is not a pair of a request id and a reason")
    request, reason = answer
    if request not in view.decoding():
        raise refused(policy, CHOOSE, answer, f"request {request} does not decode on instance {view.replica}")
    if type(reason) is not str or not reason:
        raise refused(policy, CHOOSE, answer, wrong_reason(reason))
    return request, reason
