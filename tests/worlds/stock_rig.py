"""A controller of stock engines, and a migrator that does as it is told."""

from collections.abc import Sequence
from dataclasses import replace

from policies.admission import AdmitAll
from policies.batching import ChunkedPrefill
from policies.dispatch import LeastOutstanding
from serving.composition import ServiceOptions, compose
from serving.controller import Controller
from serving.engine.fleet import Dispatcher
from serving.protocols.migration import InstancesView, Migrator, Pair, SourceView
from serving.services.stock.handover import HandOverParts
from serving.services.stock.service import Stock, StockParts
from serving.vocabulary.events import Arrived, Event
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica, Role
from serving.vocabulary.request import Request

PERIOD_NS = 50_000_000


class AsTold:
    """Pairs (source, destination) of ``pairs`` at every look; the request that was sent there first moves."""

    def __init__(self) -> None:
        self.pairs: list[tuple[int, int]] = []

    def pair(self, view: InstancesView) -> Sequence[Pair]:
        return [Pair(*one, "as told") for one in self.pairs if not any(map(view.engaged, one))]

    def choose(self, view: SourceView) -> tuple[int, str] | None:
        found = list(view.decoding())
        return (found[0], "the first") if found else None


class OnceAway(AsTold):
    """One request goes from engine 0 to engine 1, as soon as one runs."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs = [(0, 1)]

    def choose(self, view: SourceView) -> tuple[int, str] | None:
        chosen = super().choose(view)
        if chosen is not None:
            self.pairs = []
        return chosen


def replica(number: int, role: Role = "both") -> Replica:
    return Replica(
        id=number,
        model="m",
        layers=LayerRange(0, 4),
        gpus=(number,),
        kv_blocks=100,
        block_tokens=16,
        role=role,
    )


def request(number: int, prompt: int = 32, cap: int = 64) -> Request:
    return Request(number, 0, prompt, cap, "m")


class StockRig:
    """``engines`` stock engines under a controller."""

    def __init__(
        self,
        engines: int = 2,
        elsewhere: bool = True,
        dispatcher: Dispatcher | None = None,
        migrator: Migrator | None = None,
        hand_over: HandOverParts | None = None,
        starts: bool = False,
        grace: bool | None = None,
    ) -> None:
        """``starts``: engines may start, so that requests wait for one.

        ``grace``: requests of an engine whose grace period is over go elsewhere (True) or fail.

        ``hand_over``: the first half of the engines prefill, the others decode.
        """
        self.migrator, self.now_ns = AsTold(), 0
        parts = StockParts(elsewhere=elsewhere, migrator=migrator or self.migrator, period_ns=PERIOD_NS)
        roles: list[Role] = ["both"] * engines
        if hand_over is not None:
            parts = StockParts(elsewhere=elsewhere, hand_over=hand_over)
            roles = ["prefill" if 2 * one < engines else "decode" for one in range(engines)]
        if grace is not None:
            parts = replace(parts, elsewhere_after_grace=grace)
        if starts:
            parts = replace(parts, starts=replica(-1))
        self.controller: Controller = compose(
            [replica(one, role) for one, role in enumerate(roles)],
            dispatcher or LeastOutstanding(),
            lambda _: ChunkedPrefill(8, 64),
            admission=AdmitAll(),
            service_options=ServiceOptions(stock=parts),
        )
        service = self.controller.services["m"]
        assert isinstance(service, Stock)
        self.stock = service

    def handle(self, event: Event) -> list[str]:
        """The actions that follow, each as its name and the numbers it has."""
        self.now_ns += PERIOD_NS
        found = self.controller.handle(self.now_ns, event)
        return [type(one).__name__ for one in found]

    def arrive(self, *numbers: int) -> None:
        for number in numbers:
            self.handle(Arrived(request(number)))
