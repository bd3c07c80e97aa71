"""The view of one model's instances that a scaler receives, and the decisions that it may return."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

from serving.protocols.load_report import LoadReport
from serving.protocols.signals import Signals
from serving.vocabulary.fact import fact
from serving.vocabulary.replica import Role

InstanceState = Literal[
    "serving",  # takes requests
    "loading",  # waits for parameters, or starts
    "draining",  # finishes what it has and takes nothing new
    "terminating",  # draining, and to be lost (a notice came): it does not serve again
]

Act = Literal[
    "cancel_drain",  # a draining instance takes requests again
    "revive",  # an instance that was reclaimed serves again: its parameters are still on its GPUs
    "mutate",  # a prefill instance becomes a decode instance, with no transfer of parameters
    "load",  # new instances: placement chooses the GPUs, a planner the sources
    "drain",  # an instance takes nothing new and is reclaimed when it is empty
    "limit_batch",  # instances admit requests while fewer than `count` run there, from now on
    "shortage",  # wanted, but no GPUs are free: other models may be asked for some
]

Obstacle = Literal[
    "no_gpu",  # all GPUs are taken
    "no_copy",  # GPUs are free, but the provisioner finds no copy of the parameters
    "no_path",  # it finds a copy, but no path from there to free GPUs
]
OBSTACLES: Final[Mapping[Obstacle, str]] = {
    "no_gpu": "find no free GPUs",
    "no_copy": "find no copy of the parameters to load from",
    "no_path": "find no way from a copy of the parameters to free GPUs",
}


@fact
class InstanceView:
    """One instance.

    ``outstanding``: requests assigned, not finished. ``idle_since_ns``: None if busy. ``report``: its last
    load report, for scalers with ``reads_load_reports``; None while it loads.
    """

    id: int
    state: InstanceState
    outstanding: int = 0
    idle_since_ns: int | None = None
    report: LoadReport | None = None


class RoleView(Protocol):
    """The instances of one model in one role.

    ``minimum``, ``maximum``: the configured bounds on how many serve or load. ``supply``: instances that
    serve or will: a loading instance counts, a draining or terminating one does not.
    """

    @property
    def role(self) -> Role: ...

    @property
    def minimum(self) -> int: ...

    @property
    def maximum(self) -> int: ...

    @property
    def supply(self) -> int: ...

    def in_state(self, state: InstanceState) -> list[InstanceView]:
        """Its instances in this state, by id."""


@dataclass(frozen=True, slots=True)
class FixedRole:
    """A role that does not change: a view made of a list of instances."""

    role: Role
    instances: tuple[InstanceView, ...]
    minimum: int
    maximum: int

    def __post_init__(self) -> None:
        assert 0 <= self.minimum <= self.maximum, "instances need 0 <= minimum <= maximum"

    def in_state(self, state: InstanceState) -> list[InstanceView]:
        """The instances in this state, by id."""
        return sorted(
            (instance for instance in self.instances if instance.state == state),
            key=lambda instance: instance.id,
        )

    @property
    def supply(self) -> int:
        """Instances that serve or load."""
        return sum(instance.state in ("serving", "loading") for instance in self.instances)


@fact
class ScalingView:
    """One model at one tick.

    ``roles``: prefill and decode, or both in one. ``backlog_tokens``: prompt tokens queued or running and not
    yet computed. ``kv_tokens``: KV memory of decoding, in use or reserved. ``migrating_tokens``: KV in
    transfer, or waiting for it, from prefill to decode instances. ``prefill_tokens_per_s``: prompt tokens
    that one instance computes. ``kv_tokens_per_instance``: KV memory of one instance. ``kv_tokens_per_s``: KV
    that one instance can receive. ``spare``: how many more instances fit on the free GPUs, without
    ``parked``. ``parked``: reclaimed instances whose parameters are still on their GPUs. ``signals``: metrics
    as monitoring has them, for scalers with ``reads_signals``; None before the first scrape has arrived.
    """

    now_ns: int
    model: str
    roles: tuple[RoleView, ...]
    backlog_tokens: int
    kv_tokens: int
    migrating_tokens: int
    prefill_tokens_per_s: float
    kv_tokens_per_instance: int
    kv_tokens_per_s: float
    spare: int
    parked: tuple[int, ...] = ()
    signals: Signals | None = None

    @property
    def has_work(self) -> bool:
        """Whether any request waits or runs."""
        return self.backlog_tokens + self.kv_tokens + self.migrating_tokens > 0


@fact
class ScaleDecision:
    """One decision for a role of a model.

    ``act``: ``load`` (new instances), ``drain`` (an instance takes nothing new and is reclaimed when it is
    empty), ``cancel_drain`` (it takes requests again), ``revive`` (an instance of ``parked`` serves again),
    ``mutate`` (a prefill instance becomes a decode instance), ``limit_batch`` (instances admit requests while
    fewer than ``count`` run there) or ``shortage`` (wanted, but no GPUs are free: other models may be asked
    for some). ``count``: instances, or that limit. ``instances``: those concerned; empty for ``load`` and
    ``shortage``.
    """

    act: Act
    model: str
    role: Role
    count: int
    instances: tuple[int, ...]
    reason: str


@fact
class ScaleEvent:
    """A change of an instance (``replica`` -1: no instance): a decision's act, or its result.

    ``obstacle``: why wanted instances do not start; empty unless the act is ``shortage``.
    """

    now_ns: int
    act: str
    model: str
    role: str
    replica: int
    reason: str
    obstacle: Obstacle | Literal[""] = ""


@fact
class NoChangeBounds:
    """While no load of a model exceeds these bounds, its scaler decides nothing.

    ``backlog_tokens``, ``kv_tokens``, ``migrating_tokens``: as in ``ScalingView``.
    """

    backlog_tokens: float
    kv_tokens: float
    migrating_tokens: float


class SupportsNoChangeBounds(Protocol):
    """A scaler that gives bounds within which it decides nothing."""

    def no_change_bounds(self, view: ScalingView) -> NoChangeBounds | None:
        """Asked after ``scale`` decided nothing. ``scale`` is asked again when a load exceeds its bound;
        None: next period.

        After loads that found no GPUs it is asked too, and ``scale`` again once some are free or another
        model gives up an instance.
        """


class SupportsNoChangeUntil(Protocol):
    """A scaler that gives the time until which it decides nothing new."""

    def no_change_until_ns(self, view: ScalingView) -> int:
        """Asked after ``scale`` decided nothing, or only shortages: when it may decide otherwise, if loads
        and instances stay.

        After a shortage ``scale`` is also asked again when there are free GPUs or an instance that another
        model gives up.
        """


class Offer(NamedTuple):
    """A serving instance without requests that its model would give up. The least offer is taken.

    minus_surplus: how many more instances its role has than the model needs, below 0. idle_since_ns: since
    when it is idle.
    """

    minus_surplus: int
    idle_since_ns: int
    model: str
    role: Role
    instance: int


class Arbiter(Protocol):
    """Decides which idle instance a model gives up for another that lacks one while no GPUs are free."""

    def offer(self, view: ScalingView) -> Offer | None:
        """Return the instance that this model gives up first; None: it gives up none.

        Called when the model has an idle instance, again only once its loads or instances have changed: the
        time and the free GPUs of the view do not count.
        """


class Scaler(Protocol):
    """Decides how many instances a model has."""

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        """Asked once per period: the changes to make now, in this order."""
