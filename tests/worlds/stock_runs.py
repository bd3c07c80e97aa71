"""Runs of the driver of stock engines on made-up servers: journal, recorder, tokens as they must be."""

from collections.abc import Callable, Sequence

from policies.admission import AdmitAll
from policies.batching import ChunkedPrefill
from policies.dispatch import LeastOutstanding
from realexec.http.driver import HttpReport, execute, probe_all, probe_hand_overs
from realexec.http.handover import Roles
from realexec.http.server_state import Times
from realexec.world.arrivals import prompt_ids
from serving.composition import ServiceOptions, compose
from serving.controller import Controller
from serving.engine.fleet import Dispatcher
from serving.protocols.migration import Migrator
from serving.record.invariants import check
from serving.record.journal import line
from serving.record.replay import replay
from serving.services.stock.handover import HandOverParts
from serving.services.stock.service import StockParts
from serving.vocabulary.actions import Action, Migrate
from serving.vocabulary.events import Event, Streamed
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica, Role
from serving.vocabulary.request import Request
from tests.worlds.fake_openai import FakeServer, continued
from tests.worlds.journals import complete_journal
from tests.worlds.world import Collected

VOCAB, SEED = 512, 3
MS = 1_000_000
QUICK = Times(report_s=0.01, scrape_s=0.02, timeout_s=2.0)


class Lines:
    """The journal in memory; the invariants are checked after every event."""

    def __init__(self, controller: Controller) -> None:
        self.controller, self.lines, self.actions = controller, list[str](), 0
        self.events: list[Event] = []
        self.moves: list[int] = []  # requests that went elsewhere
        self.hook: Callable[[Event], object] = lambda event: None

    def write(self, now_ns: int, event: Event, actions: Sequence[Action], told: Sequence[int] = ()) -> None:
        self.lines.append(line(now_ns, event, actions, told))
        self.actions += len(actions)
        self.events.append(event)
        self.moves += [one.request for one in actions if isinstance(one, Migrate)]
        check(self.controller)
        self.hook(event)

    def text(self) -> list[str]:
        return complete_journal({"source": "test", "carries_out": []}, self.lines, self.actions)


class Failing(Collected):
    """Collected, where requests may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: dict[int, str] = {}

    def failed(self, request: Request, now_ns: int, reason: str) -> None:
        self.failures[request.id] = reason


class Run:
    """``requests`` requests on servers; ``outputs`` tokens each, one every ``gap_ms``."""

    def __init__(
        self,
        urls: Sequence[str],
        requests: int = 6,
        outputs: int = 20,
        gap_ms: float = 5,
        prompt: int = 24,
        dispatcher: Callable[[], Dispatcher] = LeastOutstanding,
        migrator: Callable[[], Migrator] | None = None,
        elsewhere: bool = True,
        roles: Roles | None = None,
    ) -> None:
        self.servers = probe_all(urls, None)
        if roles is not None:
            self.servers = probe_hand_overs(self.servers, roles)
        self._policies, self._roles = (dispatcher, migrator, elsewhere), roles
        self.requests = [
            (Request(one, round(one * gap_ms * MS), prompt, outputs, "m"), outputs) for one in range(requests)
        ]
        self.recorder, self.controller = Failing(), self.fresh()
        self.journal = Lines(self.controller)

    def fresh(self) -> Controller:
        dispatcher, migrator, elsewhere = self._policies
        roles, count = self._roles, len(self.servers)
        replicas = [
            Replica(
                id=one,
                model="m",
                layers=LayerRange(0, 4),
                gpus=(one,),
                kv_blocks=256,
                role=role_of(one, roles),
            )
            for one in range(count)
        ]
        hand_over = None if roles is None else HandOverParts(KvBytes(8), roles.together)
        parts = StockParts(
            elsewhere=elsewhere,
            migrator=None if migrator is None else migrator(),
            period_ns=20 * MS,
            hand_over=hand_over,
        )
        return compose(
            replicas,
            dispatcher(),
            lambda _: ChunkedPrefill(8, 64),
            admission=AdmitAll(),
            service_options=ServiceOptions(stock=parts),
        )

    def go(self, times: Times = QUICK) -> HttpReport:
        """To the end."""
        opens = self._policies[1] is not None
        return execute(
            self.controller,
            self.requests,
            self.servers,
            vocab_size=VOCAB,
            seed=SEED,
            recorder=self.recorder,
            journal=self.journal,
            on_progress=None,
            times=times,
            opens=opens,
            roles=self._roles,
        )

    def assert_exact(self, report: HttpReport, but: Sequence[int] = ()) -> None:
        """Every request has the tokens of an undisturbed server."""
        for request, outputs in self.requests:
            if request.id in but:
                continue
            prompt = list(prompt_ids(SEED, request.id, request.prompt_tokens, VOCAB))
            assert list(report.run.generations[request.id].tokens) == continued(prompt, outputs)

    def assert_replays(self) -> None:
        found = replay(self.journal.text(), self.fresh())
        assert (found.different, found.first_difference, found.cut) == (0, None, None)


def role_of(replica: int, roles: Roles | None) -> Role:
    if roles is None:
        return "both"
    return "prefill" if replica in roles.prefills else "decode"


def after_tokens(
    act: Callable[[], object],
    server: FakeServer,
    number: int = 0,
    until: type[Event] | None = None,
    tokens: int = 10,
) -> Callable[[Event], None]:
    """Does it once, when the driver has so many tokens of that server, replica ``number``.

    The server sends few more before that, and before an event ``until``: however late the driver is, requests
    are in the middle.
    """
    server.pause_after(tokens + 20)  # the driver does not count those that it had before
    seen = [0]

    def look(event: Event) -> None:
        before = seen[0]
        if isinstance(event, Streamed) and event.replica == number:
            seen[0] += sum(count for _, count in event.tokens)
        came = before < tokens <= seen[0]
        if came:
            act()
        if type(event) is until or (came and until is None):
            server.go_on()

    return look
