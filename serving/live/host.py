"""Around the live pairs of a model: what is fixed, what is counted, and the service they take from."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from serving.engine.engine import Engine
from serving.engine.progress import Progress
from serving.kv.pieces import Piece
from serving.live.pairs import LivePair
from serving.protocols.live import LivePolicy
from serving.vocabulary.actions import Action
from serving.vocabulary.request import Request


@dataclass(frozen=True, slots=True)
class LiveSetup:
    """Of one model. prefill_tokens_per_s: of one instance, for what schedulers see.

    activation_bytes_per_token: what is sent when a batch changes hands (hidden size x 2, as the artefact of
    OSDI 2025 does). The rest is for instances that do both: kv_bytes_per_token of the model on all ranks
    together; max_num_seqs that decode on one. enabled: whether the policy may choose any instance.
    """

    policy: LivePolicy
    layers: int
    activation_bytes_per_token: int
    prefill_tokens_per_s: float
    kv_bytes_per_token: int = 0
    max_num_seqs: int = 1 << 30
    enabled: bool = True


@dataclass(slots=True)
class LiveCounts:
    """passes: over layers on instances that lacked others; requests: that had such a pass; layer_counts: how
    many layers were there when one began. Plans: of batches whose layers a scheduler divided; refused for
    what their replay said; late: not there with the first layer.
    """

    passes: int = 0
    requests: int = 0
    layer_counts: set[int] = field(default_factory=set)
    plans_used: int = 0
    plans_refused: int = 0
    plans_late: int = 0


class LiveHost(Protocol):
    """What live pairs take from the service of their model, and give to it: all in which services differ."""

    @property
    def model(self) -> str: ...

    def backlog_tokens(self, batches: Iterable[Request]) -> int:
        """Prompt tokens not computed yet; ``batches``: the requests of all live batches."""

    def head_arrival_ns(self) -> int | None:
        """When the first request in the queue came; None without one."""

    def fetch(self, engine: Engine) -> list[Request]:
        """Take the next batch from the queue that the engine has memory for; empty: none."""

    def partners(self) -> list[int]:
        """Serving instances that may run the layers a target lacks."""

    def helpers(self) -> list[int]:
        """Those that may where there is no partner, the best first."""

    def may_run_layers(self, engine: Engine, pair: LivePair | None) -> bool:
        """Whether an instance that runs no layers may run some now; ``pair``: its own, where it is new."""

    def holds(self, engine: Engine, requests: Iterable[Request]) -> bool:
        """Whether a source has room for these."""

    def keep(self, engine: Engine, requests: Iterable[Request]) -> None:
        """A source has pulled these: if it decodes, room for their outputs is kept from now on."""

    def dropped(self, engine: Engine) -> None:
        """What it had pulled is not to be computed there any more."""

    def give_back(self, requests: Iterable[Request]) -> None:
        """These go to the head of the queue again, in this order."""

    def computed(
        self,
        engine: Engine,
        done: list[Progress],
        first_layers: Piece | None,
        tokens: int,
        actions: list[Action],
    ) -> None:
        """The engine ran the last layers of a batch of so many tokens; ``done`` of it need more tokens.

        first_layers: where the KV of the others lies; None: all of it is on the engine.
        """
