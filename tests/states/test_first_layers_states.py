"""Every cell of the table of live batches is played, where instances prefill and decode."""

import pytest

from policies.admission import AdmitAll
from policies.batching import PrefillFirst
from policies.dispatch import LeastOutstanding
from policies.live.live_scaling import LiveScaling
from policies.live.zigzag import IlpFree
from serving.engine.engine import Engine
from serving.engine.fleet import Fleet
from serving.kv.transfer_ids import TransferIds
from serving.live.host import LiveSetup
from serving.protocols.live import LiveTarget
from serving.services.colocated.service import Colocated
from serving.vocabulary.actions import Action, Fail, Run, Send, StopSend
from serving.vocabulary.events import Ran, Sent
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request
from tests.states.first_layers_states import CELLS, STATES

LAYERS, PROMPT, KV_BYTES = 4, 4, 8
SERVING, NEW = 0, 1  # replicas
FIRST, SECOND = 0, 1  # requests
ACTIVATIONS = "its activations are on their way"


class Case:
    """Replica 0 serves and 1 loads: it runs the first layer of request 1, and 0 runs the others."""

    def __init__(self, state: str) -> None:
        replicas = [
            Replica(
                id=one, model="m", layers=LayerRange(0, LAYERS), gpus=(one,), kv_blocks=16, block_tokens=4
            )
            for one in (0, 1)
        ]
        self.engines = {
            one.id: Engine(one, PrefillFirst(8, 16), coalesce=False, loaded=one.id == SERVING)
            for one in replicas
        }
        self.requests: dict[int, Request] = {}
        self.ids = TransferIds()
        setup = LiveSetup(
            policy=LiveScaling(IlpFree(), 0),
            layers=LAYERS,
            activation_bytes_per_token=2,
            prefill_tokens_per_s=20.0,
            kv_bytes=KvBytes(KV_BYTES),
            max_num_seqs=8,
        )
        self.service = Colocated(
            fleet=Fleet("m", replicas[:1]),
            engines=self.engines,
            requests=self.requests,
            dispatcher=LeastOutstanding(),
            admission=AdmitAll(),
            prototype=replicas[0],
            max_num_batched_tokens=16,
            transfer_ids=self.ids,
            live=setup,
        )
        self.transfer = -1
        self.begin()
        if state == ACTIVATIONS:
            return
        self.run_last_layers()
        if state == STATES[0]:
            return
        self.transfer = self.ran(SERVING)
        if state == STATES[2]:
            self.ended(self.transfer)

    def begin(self) -> None:
        """Until the activations of request 1 are on their way to replica 0, where request 0 decodes."""
        live = self.service.live
        self.arrive(FIRST)
        live.choose(0, [LiveTarget(NEW, 1000, True)])
        live.begin(0, NEW)
        live.layers_loaded(0, NEW, 1, False, [])
        self.arrive(SECOND)
        self.ran(NEW)
        self.activations = self.ran(SERVING)

    def run_last_layers(self) -> None:
        """The activations came, after a first transfer that the world had stopped."""
        again = [one for one in self.ended(self.activations, "link gone") if isinstance(one, Send)]
        assert [(one.what, one.source, one.target) for one in again] == [("activations", NEW, SERVING)]
        self.ended(self.activations + 1)
        self.ran(SERVING)  # a decode step of request 0
        layer_pass = self.engines[SERVING].layer_pass
        assert layer_pass is not None and layer_pass.begun and layer_pass.layers == (1, LAYERS)

    def arrive(self, number: int) -> None:
        request = self.requests[number] = Request(number, number, PROMPT, 10, "m")
        self.service.arrived(request, [])

    def ran(self, replica: int) -> int:
        """The transfer that it asks for, or -1."""
        actions: list[Action] = []
        self.service.ran(self.engines[replica], Ran(replica, 0, 1, ()), actions)
        return next((one.transfer for one in actions if isinstance(one, Send)), -1)

    def ended(self, transfer: int, cause: str = "") -> list[Action]:
        actions: list[Action] = []
        self.ids.model_of(transfer)
        self.service.sent(Sent(transfer, 0, cause), actions)
        return actions

    def play(self, event: str) -> str:
        """What the code makes of the event, in the words of the table."""
        actions = list[Action]()
        try:
            if event == "last layers ended":
                self.service.sharing.ran(self.engines[SERVING], Ran(SERVING, 0, 1, ()), actions)
            elif event.endswith("lost"):
                lost = NEW if event.startswith("source") else SERVING
                self.service.lose(self.engines[lost], "gone", actions)
            elif self.transfer < 0:
                return "-"
            else:
                actions = self.ended(self.transfer, "link gone" if "stopped" in event else "")
        except (AssertionError, KeyError):
            return "refused"
        return self.outcome(actions)

    def outcome(self, actions: list[Action]) -> str:
        live, engine = self.service.live, self.engines[SERVING]
        waits = SECOND in [one.id for one in engine.outgoing]
        decodes = SECOND in [*engine.running, *(one.id for one in engine.attached)]
        goes_on = SECOND in [one.id for one in live.requests]
        fails = Fail(SECOND, "gone") in actions
        assert waits + decodes + goes_on + fails == 1, actions
        stopped = ", its transfers are stopped" if any(isinstance(one, StopSend) for one in actions) else ""
        if waits:
            again = any(isinstance(one, Send) for one in actions) and self.transfer >= 0
            return "sent again" if again else STATES[1]
        words = {"decodes": decodes, "the target continues it": goes_on, "fails": fails}
        return next(word for word, holds in words.items() if holds) + stopped


@pytest.mark.parametrize(("state", "event"), CELLS)
def test_every_state_answers_every_event(state: str, event: str) -> None:
    assert Case(state).play(event) == CELLS[state, event]


def test_first_layers_are_fetched_as_one_move_and_their_blocks_given_back() -> None:
    case = Case(STATES[0])
    actions: list[Action] = []
    case.service.ran(case.engines[SERVING], Ran(SERVING, 0, 1, ()), actions)
    (send,) = [one for one in actions if isinstance(one, Send)]
    assert (send.what, send.requests, send.source, send.target) == ("kv", (SECOND,), NEW, SERVING)
    assert send.size_bytes == PROMPT * KV_BYTES // LAYERS
    assert case.engines[NEW].ledger.free_blocks == 15
    assert not any(isinstance(one, Run) for one in case.ended(send.transfer, "link gone"))
    assert case.engines[NEW].ledger.free_blocks == 15
    case.ended(send.transfer + 1)
    assert case.engines[NEW].ledger.free_blocks == 16


@pytest.mark.parametrize("lost", [SERVING, NEW])
def test_activations_of_a_batch_whose_instance_is_lost_are_stopped(lost: int) -> None:
    case, actions = Case(ACTIVATIONS), list[Action]()
    case.service.lose(case.engines[lost], "gone", actions)
    stops = [one for one in actions if isinstance(one, StopSend)]
    assert stops == [StopSend(case.activations, f"replica {lost} was lost")]
    assert not [one for one in case.ended(case.activations, "stopped") if isinstance(one, Send | Run)]
