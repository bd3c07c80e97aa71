"""One migration between two instances, told one fact at a time through the whole controller."""

from policies.admission import AdmitAll
from policies.batching import PrefillFirst
from policies.dispatch import RoundRobin
from serving.composition import MigrationParts, ServiceOptions, compose
from serving.engine.engine import Engine
from serving.engine.fleet import Dispatcher
from serving.engine.pool import EngineOptions
from serving.engine.progress import AT_WORK, EngineState
from serving.engine.request_state import RequestState
from serving.kv.migration import Migrations
from serving.kv.migration_rules import Migration, MigrationRules, Mode
from serving.protocols.migration import Pair
from serving.record.invariants import check
from serving.services.colocated.migrating import Migrating
from serving.vocabulary.actions import Action, Run, Send
from serving.vocabulary.events import Arrived, Event, Lost, Opened, Ran, Sent, Woke
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request
from tests.worlds.request_states import state_of

BLOCK, BYTES, CONTROL_NS = 4, 8, 7
KV_BYTES = KvBytes(BYTES)
WHO = 0  # the request that migrates, from instance 0 to 1


class Once:
    """One pair at the first look; request 0 leaves."""

    def __init__(self) -> None:
        self.pairs: tuple[Pair, ...] = (Pair(0, 1, "told to"),)

    def pair(self, view):  # type: ignore[no-untyped-def]
        pairs, self.pairs = self.pairs, ()
        return pairs

    def choose(self, view):  # type: ignore[no-untyped-def]
        return (WHO, "the first") if WHO in view.decoding() else None


class MigrationRig:
    """Request 0 decodes on instance 0, request 1 on instance 1. Step by step, so that each event is told.

    ``actions``: all since the last event that was told.
    """

    def __init__(
        self,
        mode: Mode = "live",
        last_stage_blocks: int = 1,
        prompt: int = 30,
        blocks: int = 40,
        max_stages: int = 3,
        other_prompt: int = 8,
        loading: bool = False,
        dispatcher: Dispatcher | None = None,
        kv_bytes: KvBytes = KV_BYTES,
        sequence_blocks: int = 0,
    ) -> None:
        """``loading``: the destination still does, and its request waits there."""
        replicas = [
            Replica(
                id=id,
                model="m",
                layers=LayerRange(0, 4),
                gpus=(id,),
                kv_blocks=blocks,
                block_tokens=BLOCK,
                sequence_blocks=sequence_blocks,
            )
            for id in range(2)
        ]
        rules = MigrationRules(mode, last_stage_blocks, max_stages, CONTROL_NS, kv_bytes, 8, loading)
        migration = MigrationParts(Once(), 50, {"m": rules})
        options = ServiceOptions(migration=migration, bypass=RoundRobin())
        self.controller = compose(
            replicas,
            dispatcher or RoundRobin(),
            lambda _: PrefillFirst(8, 256),
            admission=AdmitAll(),
            engine_options=EngineOptions(coalesce=False),
            service_options=options,
        )
        self.now_ns, self.actions, self.history = 0, list[Action](), list[Action]()
        if loading:
            self.destination.state = EngineState.LOADING
        self.tell(Opened())
        self.tell(Arrived(Request(WHO, 0, prompt, 64, "m")))
        self.tell(Arrived(Request(1, 0, other_prompt, 64, "m")))
        self.step(0)
        if not loading:
            self.step(1)

    @property
    def migrations(self) -> Migrations:
        service = self.controller.services["m"]
        assert isinstance(service, Migrating)
        return service.migrations

    @property
    def migration(self) -> Migration | None:
        return self.migrations.of_replica.get(0) or self.migrations.of_replica.get(1)

    @property
    def service(self) -> Migrating:
        service = self.controller.services["m"]
        assert isinstance(service, Migrating)
        return service

    @property
    def source(self) -> Engine:
        return self.controller.engines[0]

    @property
    def destination(self) -> Engine:
        return self.controller.engines[1]

    def tell(self, event: Event) -> list[Action]:
        """A fact, 10 ns after the last one; invariants are checked."""
        self.now_ns += 10
        self.actions = list(self.controller.handle(self.now_ns, event))
        self.history += self.actions
        check(self.controller)
        return self.actions

    def step(self, replica: int, *finished: int) -> list[Action]:
        """An instance reports the step that it was told to run."""
        return self.tell(Ran(replica, self.controller.engines[replica].epoch, 1, finished))

    def look(self) -> list[Action]:
        return self.tell(Woke())

    def boundary(self) -> None:
        """Both ends report a step, the source last, if they run one."""
        for replica in (1, 0):
            if self.controller.engines[replica].state in AT_WORK:
                self.step(replica)

    def come(self, cause: str = "") -> list[Action]:
        """The last transfer has ended."""
        send = self.sends[-1]
        return self.tell(Sent(send.transfer, 0 if cause else send.size_bytes, cause))

    def load(self) -> list[Action]:
        """The destination has its parameters, and takes requests."""
        self.actions = []
        if self.destination.state is EngineState.LOADING:
            self.destination.ready(self.actions)
        self.migrations.joined(1, self.actions)
        check(self.controller)
        return self.actions

    def lose(self, replica: int) -> list[Action]:
        return self.tell(Lost(replica, "test"))

    @property
    def sends(self) -> list[Send]:
        return [one for one in self.history if isinstance(one, Send)]

    @property
    def runs(self) -> list[Run]:
        return [one for one in self.history if isinstance(one, Run)]

    def state(self, replica: int) -> RequestState:
        """Of the request that migrates, at an instance."""
        return state_of(self.controller.engines[replica], WHO)
