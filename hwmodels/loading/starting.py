"""How the instances of a run start: cold, warm, hot or pooled, and which terms each kind skips."""

from dataclasses import dataclass
from math import ceil
from typing import Final

from hwmodels.loading.start_terms import StartSeconds, StartTerms

KINDS: Final = ("cold", "warm", "hot", "pooled")
COMPILE_CACHES: Final = ("host", "shared", "present", "none")
COMPILED, CACHED = "compiled", "cached"
TOTAL: Final = "total"

Terms = tuple[tuple[str, float], ...]
"""(Term, seconds), in the order in which they happen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting:
    """The state before every start of a run (docs/explanation/STARTUP.md).

    kind: ``cold``, nothing exists; ``warm``, the process and its caches exist; ``hot``, the process sleeps
    there with its parameters in the memory of its host; ``pooled``, process, context, connections, kernels
    and graphs wait for parameters. compile_cache: where the next start finds what one start compiled: on its
    ``host``, on all hosts (``shared``), always (``present``) or never (``none``). ready: the initial
    instances have run on their hosts before. total_s: of kind ``total``, seconds from the decision to the
    first step, parameters included, if these do not take longer. image_pull_s: of a cold start on a host that
    has not pulled the container's image. probe_s: time between two readiness probes of a pod, the first one
    period after its container starts; 0: an instance serves as soon as it can.
    """

    kind: str
    compile_cache: str
    terms: StartTerms
    max_num_seqs: int
    ready: bool = True
    total_s: float = 0.0
    image_pull_s: float = 0.0
    probe_s: float = 0.0

    def of(self, layers: int, ranks: int) -> StartSeconds:
        """Seconds of each term for these layers and GPUs."""
        return self.terms.of(layers, ranks, self.max_num_seqs)


def before_weights(kind: str, seconds: StartSeconds, checked: bool) -> Terms:
    """The terms before parameters may arrive; ``checked``: the host has the result of the P2P check."""
    if kind in ("pooled", TOTAL):
        return ()
    if kind == "hot":
        return (("wake", seconds.wake),)
    process = (("process", seconds.process),) if kind == "cold" else ()
    check = 0.0 if checked or kind == "warm" else seconds.p2p_check
    return (*process, ("context", seconds.context), ("distributed", seconds.distributed + check))


def after_weights(kind: str, seconds: StartSeconds, cached: bool) -> Terms:
    """The terms from the last byte to the first step; ``cached``: the compiled code exists."""
    if kind in ("hot", "pooled", TOTAL):
        return ()
    return (
        ("compile", seconds.compile_cached if cached else seconds.compile_whole),
        ("profiling", seconds.profiling),
        ("graphs", seconds.graphs),
        ("first_request", seconds.first_request),
    )


def until_probe(probe_s: float, running_s: float) -> Terms:
    """The wait of a container that can serve after ``running_s`` for its next readiness probe."""
    if not probe_s:
        return ()
    return (("readiness_probe", max(1, ceil(round(running_s / probe_s, 9))) * probe_s - running_s),)


def seconds_of(terms: Terms) -> float:
    """Sum of the terms, which follow one another."""
    return sum(seconds for _, seconds in terms)


def serves_while_loading(starting: Starting | None) -> bool:
    """Whether an instance can run its loaded layers: nothing is compiled or captured after the last one."""
    if starting is None:
        return True
    if starting.kind == TOTAL:
        return False
    return seconds_of(after_weights(starting.kind, starting.of(1, 1), cached=True)) == 0
