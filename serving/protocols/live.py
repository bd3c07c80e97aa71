"""Live scaling of a pair: what its scheduler sees, and the plan it returns.

The old instance of a pair (source) has all layers; the new one (target) is still loading them. For every
batch the target runs the first layers and the source the others, so the target helps before it is complete.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from serving.vocabulary.fact import fact

LiveRule = Literal["pull", "split", "stop"]


@dataclass(frozen=True, slots=True)
class LiveView:
    """Batches that a pair of instances shares while one of them, the target, loads; in order of arrival.

    layers: of the model. layer_load_ns: time until one more layer is on the target. batch_layer_ns: how long
    one layer of each batch takes. arrival_ns: when each batch arrives; empty: all at 0. loaded: layers on the
    target at time 0.
    """

    layers: int
    layer_load_ns: int
    batch_layer_ns: tuple[int, ...]
    arrival_ns: tuple[int, ...] = ()
    loaded: int = 1

    def __post_init__(self) -> None:
        if self.layers < 2 or self.layer_load_ns < 1:
            raise ValueError(f"{self.layers} layers, one each {self.layer_load_ns} ns, cannot be shared")
        if not 1 <= self.loaded <= self.layers:
            raise ValueError(
                f"{self.loaded} of {self.layers} layers are loaded: a pair starts with one or more"
            )
        if any(layer_ns < 1 for layer_ns in self.batch_layer_ns):
            raise ValueError("a layer of every batch takes 1 ns or more")
        if self.arrival_ns and len(self.arrival_ns) != len(self.batch_layer_ns):
            raise ValueError(f"{len(self.arrival_ns)} arrivals of {len(self.batch_layer_ns)} batches")

    @property
    def batches(self) -> int:
        """The number of batches."""
        return len(self.batch_layer_ns)

    def arrived_ns(self, batch: int) -> int:
        """When the batch arrives."""
        return self.arrival_ns[batch] if self.arrival_ns else 0

    def loaded_at(self, time_ns: int) -> int:
        """Layers on the target at that time."""
        return min(self.layers, self.loaded + time_ns // self.layer_load_ns)


@fact
class LivePlan:
    """How a pair works on its batches until everything is loaded.

    rule: ``pull`` (an idle source takes the earliest batch with a finished layer and runs the rest of it),
    ``split`` (the target runs the first ``target_layers`` of each batch, the source the others) or ``stop``
    (the target waits until it is complete). target_layers: a forecast unless the rule is ``split``.
    finish_ns: for each batch, when it will finish. refused: a split was found, but rejected because of its
    replay's result.
    """

    rule: LiveRule
    target_layers: tuple[int, ...]
    finish_ns: tuple[int, ...]
    reason: str
    refused: bool = False


class LiveScheduler(Protocol):
    """Decides how a pair shares the waiting batches.

    ahead: 0: never asked, the rule is ``pull``; 1: asked for every batch when its turn comes; more: asked
    once, when the first layer is loaded, for this many waiting batches. solve_ns: how long an answer takes.
    """

    @property
    def ahead(self) -> int: ...

    @property
    def solve_ns(self) -> int: ...

    def plan(self, view: LiveView) -> LivePlan:
        """A plan for all batches of the view."""


@fact
class LiveTarget:
    """An instance about to load.

    load_ns: estimate; None: unknown. tail: it feeds no other instance.
    """

    replica: int
    load_ns: int | None
    tail: bool


@fact
class LiveChoice:
    """Instances of a model that begin to load.

    targets: in the order of their plan. waited_ns: how long the first request in the queue has waited.
    backlog_tokens: prompt tokens not computed yet. partners: instances that could run the layers a new
    instance lacks. helpers: decode instances, which can run them if there are no other instances. pairs:
    instances that are live already.
    """

    targets: tuple[LiveTarget, ...]
    waited_ns: int
    backlog_tokens: int
    partners: int
    helpers: int
    pairs: int = 0


class LivePolicy(Protocol):
    """Decides which new instances work while they load, and how.

    embeds: the new instance loads the embedding before its first layer; else an old instance embeds its
    prompts. scheduler: how a pair shares its batches.
    """

    @property
    def scheduler(self) -> LiveScheduler: ...

    @property
    def embeds(self) -> bool: ...

    def select(self, choice: LiveChoice) -> tuple[int, ...]:
        """Asked when instances begin to load: the replicas of the targets that are to be live."""
