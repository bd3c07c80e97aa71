"""The surroundings of a model's live pairs: fixed settings, counters, and the service's interface."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from serving.engine.engine import Engine
from serving.engine.progress import Progress
from serving.kv.pieces import Piece
from serving.live.pairs import LivePair
from serving.protocols.live import LivePolicy
from serving.vocabulary.actions import Action
from serving.vocabulary.kv_bytes import NO_KV, KvBytes
from serving.vocabulary.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSetup:
    """Settings of one model. prefill_tokens_per_s: rate of one instance, for the schedulers' view.

    activation_bytes_per_token: bytes sent per token when a batch changes instances (hidden size x 2, as in
    the artefact of OSDI 2025). enabled: whether the policy may choose any instance. The other fields are for
    instances that prefill and decode: kv_bytes; max_num_seqs, the maximum number of requests that decode on
    one instance.
    """

    policy: LivePolicy
    layers: int
    activation_bytes_per_token: int
    prefill_tokens_per_s: float
    kv_bytes: KvBytes = NO_KV
    max_num_seqs: int = 1 << 30
    enabled: bool = True


@dataclass(slots=True, kw_only=True)
class LiveCounts:
    """passes: number of passes on instances without all layers. requests: number of requests in such passes.

    layer_counts: the numbers of layers that were loaded when such passes began. plans_used: number of plans
    used for batches whose layers a scheduler divided. plans_refused: number of plans rejected because of
    their replay. plans_late: number of plans that were not ready when the first layer was.
    """

    passes: int = 0
    requests: int = 0
    layer_counts: set[int] = field(default_factory=set)
    plans_used: int = 0
    plans_refused: int = 0
    plans_late: int = 0


class LiveHost(Protocol):
    """The interface between live pairs and their model's service; contains all that differs by service."""

    @property
    def model(self) -> str: ...

    def backlog_tokens(self, batches: Iterable[Request]) -> int:
        """Prompt tokens not computed yet; ``batches``: the requests of all live batches."""

    def head_arrival_ns(self) -> int | None:
        """When the first request in the queue arrived; None if the queue is empty."""

    def fetch(self, engine: Engine) -> list[Request]:
        """Take the next batch from the queue that fits into the engine's memory; may be empty."""

    def partners(self) -> list[int]:
        """Serving instances that may run the layers a target lacks."""

    def helpers(self) -> list[int]:
        """Instances that may do so if there is no partner, the best first."""

    def may_run_layers(self, engine: Engine, pair: LivePair | None) -> bool:
        """Whether an instance that runs no layers may run some now; ``pair``: its own, if it is new."""

    def holds(self, engine: Engine, requests: Iterable[Request]) -> bool:
        """Whether a source has room for these requests."""

    def keep(self, engine: Engine, requests: Iterable[Request]) -> None:
        """A source has pulled these requests: if it decodes, keep room for their outputs from now on."""

    def dropped(self, engine: Engine) -> None:
        """Requests that this engine had pulled will no longer be computed there."""

    def give_back(self, requests: Iterable[Request]) -> None:
        """Return these requests to the head of the queue, in this order."""

    def computed(
        self,
        engine: Engine,
        done: list[Progress],
        first_layers: Piece | None,
        tokens: int,
        actions: list[Action],
    ) -> None:
        """The engine ran the last layers of a batch of ``tokens`` tokens; the requests ``done`` need more.

        first_layers: where the KV of the other layers is; None: all KV is on the engine.
        """
