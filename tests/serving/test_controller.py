"""The controller: facts about a whole cluster in, whole action lists out."""

from collections.abc import Sequence

import pytest

from policies.admission import AdmitAll, TokenBucket
from policies.batching import ChunkedPrefill
from policies.dispatch import LeastOutstanding, RoundRobin
from serving.composition import compose
from serving.engine.fleet import Admission, Dispatcher
from serving.record.invariants import check
from serving.vocabulary.actions import Action, Assign, Fail, Interrupt, Reject, Run
from serving.vocabulary.events import Arrived, Lost, Ran
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request


class Cluster:
    """A controller told one fact per nanosecond, its invariants checked after each."""

    def __init__(
        self,
        models: Sequence[str],
        dispatcher: Dispatcher | None = None,
        admission: Admission | None = None,
        blocks: Sequence[int] | None = None,
        max_model_len: int | None = None,
    ) -> None:
        kv_blocks = blocks or [16] * len(models)
        replicas = [
            Replica(
                id=id,
                model=model,
                layers=LayerRange(0, 2),
                gpus=(id,),
                kv_blocks=kv_blocks[id],
                block_tokens=4,
                max_model_len=max_model_len,
            )
            for id, model in enumerate(models)
        ]
        self.controller = compose(
            replicas,
            dispatcher or LeastOutstanding(),
            lambda _: ChunkedPrefill(4, 8),
            admission=admission or AdmitAll(),
        )
        self.now_ns = 0

    def arrive(
        self, request: int, model: str = "m", prompt_tokens: int = 6, max_new_tokens: int = 30
    ) -> list[Action]:
        return self._told(Arrived(Request(request, self.now_ns, prompt_tokens, max_new_tokens, model)))

    def ran(self, replica: int, steps: int, *finished: int, epoch: int = 0) -> list[Action]:
        return self._told(Ran(replica, epoch, steps, finished))

    def lose(self, replica: int, cause: str = "host gone") -> list[Action]:
        return self._told(Lost(replica, cause))

    @property
    def counts(self) -> dict[str, int]:
        return {
            name: getattr(self.controller, name) for name in ("arrived", "finished", "rejected", "failed")
        }

    def _told(self, event: Arrived | Ran | Lost) -> list[Action]:
        self.now_ns += 1
        actions = self.controller.handle(self.now_ns, event)
        check(self.controller)
        return actions


def prompt_run(replica: int, request: int, max_steps: int = 57) -> Run:
    """The run that an arrival of 6 tokens starts on an idle replica: 14 free blocks, 4 steps each."""
    return Run(replica, 0, ((request, 0, 6),), True, max_steps, False, "chunked")


def test_arrivals_go_to_the_least_loaded_replica_with_reasons() -> None:
    cluster = Cluster(["m", "m"])
    assert cluster.arrive(10) == [Assign(10, 0, "0 outstanding"), prompt_run(0, 10)]
    assert cluster.arrive(11) == [Assign(11, 1, "0 outstanding"), prompt_run(1, 11)]
    assert cluster.arrive(12) == [Assign(12, 0, "1 outstanding"), Interrupt(0, "arrival")]
    assert cluster.ran(1, 4, 11) == []
    assert cluster.arrive(13) == [Assign(13, 1, "0 outstanding"), prompt_run(1, 13)]
    assert cluster.counts == {"arrived": 4, "finished": 1, "rejected": 0, "failed": 0}
    assert sorted(cluster.controller.requests) == [10, 12, 13]


def test_each_model_has_its_own_replicas() -> None:
    cluster = Cluster(["a", "b", "a", "b"], RoundRobin())
    assert [cluster.arrive(id, "b")[0] for id in range(3)] == [
        Assign(0, 1, "its turn"),
        Assign(1, 3, "its turn"),
        Assign(2, 1, "its turn"),
    ]
    assert cluster.arrive(3, "a")[0] == Assign(3, 0, "its turn")


def test_an_unknown_model_is_rejected() -> None:
    cluster = Cluster(["a"])
    assert cluster.arrive(0, "b") == [Reject(0, "model b is not served")]
    assert cluster.counts == {"arrived": 1, "finished": 0, "rejected": 1, "failed": 0}
    assert cluster.controller.requests == {}


@pytest.mark.parametrize(("max_new_tokens", "fits"), [(58, True), (59, False)])
def test_a_request_that_no_replica_can_hold_is_rejected(max_new_tokens: int, fits: bool) -> None:
    cluster = Cluster(["m"])
    actions = cluster.arrive(0, prompt_tokens=6, max_new_tokens=max_new_tokens)
    refused = [Reject(0, "prompt + max_new_tokens exceed the 64 KV tokens of a replica")]
    assert actions == ([Assign(0, 0, "0 outstanding"), prompt_run(0, 0)] if fits else refused)


@pytest.mark.parametrize(("max_model_len", "named"), [(35, "context of 35 tokens"), (36, ""), (None, "")])
def test_a_request_beyond_the_context_is_rejected_by_itself(max_model_len: int | None, named: str) -> None:
    cluster = Cluster(["m"], max_model_len=max_model_len)
    (first, *_) = cluster.arrive(0, prompt_tokens=6, max_new_tokens=30)
    refused = Reject(0, f"prompt + max_new_tokens exceed the {named} (max_model_len)")
    assert first == (refused if named else Assign(0, 0, "0 outstanding"))
    assert cluster.arrive(1, prompt_tokens=6, max_new_tokens=29)[0] != refused
    assert cluster.counts["rejected"] == bool(named)


def test_a_prompt_that_fills_the_memory_is_rejected_for_that() -> None:
    (only,) = Cluster(["m"]).arrive(0, prompt_tokens=64, max_new_tokens=1)
    assert only == Reject(0, "the prompt fills the 64 KV tokens of a replica")


def test_the_context_is_named_before_the_memory() -> None:
    cluster = Cluster(["m"], max_model_len=40)
    (only,) = cluster.arrive(0, prompt_tokens=70, max_new_tokens=30)
    assert isinstance(only, Reject) and "context of 40 tokens" in only.reason


def test_the_smallest_replica_bounds_what_is_let_in() -> None:
    cluster = Cluster(["m", "m"], blocks=[16, 3])
    assert cluster.arrive(0, prompt_tokens=6, max_new_tokens=7) == [
        Reject(0, "prompt + max_new_tokens exceed the 12 KV tokens of a replica")
    ]


def test_the_admission_policy_has_the_last_word() -> None:
    cluster = Cluster(["m"], admission=TokenBucket(rate_per_s=1.0, burst=1))
    assert cluster.arrive(0)[0] == Assign(0, 0, "0 outstanding")
    assert cluster.arrive(1) == [Reject(1, "token bucket empty")]


def test_a_request_that_cannot_be_served_takes_no_token_from_the_bucket() -> None:
    cluster = Cluster(["m"], admission=TokenBucket(rate_per_s=1.0, burst=1))
    cluster.arrive(0, max_new_tokens=1000)
    cluster.arrive(1, "other")
    assert cluster.arrive(2)[0] == Assign(2, 0, "0 outstanding")


def lost_half() -> Cluster:
    """Two replicas: 0 runs requests 4 and 2 and is then lost; 1 runs request 3."""
    cluster = Cluster(["m", "m"])
    cluster.arrive(4)
    cluster.arrive(3)
    cluster.arrive(2)
    assert cluster.lose(0) == [Fail(2, "host gone"), Fail(4, "host gone")]
    return cluster


def test_a_loss_fails_everyone_on_the_replica_and_nobody_else() -> None:
    cluster = lost_half()
    assert cluster.counts == {"arrived": 3, "finished": 0, "rejected": 0, "failed": 2}
    assert list(cluster.controller.requests) == [3]
    # 62 of its 64 positions are taken.
    assert cluster.ran(1, 57) == [Run(1, 0, (), True, 2, False, "decode")]


@pytest.mark.parametrize("finished", [(), (4,)])
def test_a_late_report_of_the_lost_epoch_is_ignored(finished: tuple[int, ...]) -> None:
    cluster = lost_half()
    assert cluster.ran(0, 1, *finished, epoch=0) == []
    assert cluster.counts["finished"] == 0


def test_a_second_loss_is_ignored() -> None:
    cluster = lost_half()
    assert cluster.lose(0, "again") == []
    assert cluster.counts["failed"] == 2


@pytest.mark.parametrize("dispatcher", [LeastOutstanding(), RoundRobin()], ids=lambda d: type(d).__name__)
def test_arrivals_avoid_a_lost_replica(dispatcher: Dispatcher) -> None:
    cluster = Cluster(["m", "m", "m"], dispatcher)
    cluster.arrive(0)
    cluster.lose(0)
    assert {cluster.arrive(id)[0].replica for id in range(1, 7)} == {1, 2}  # type: ignore[union-attr]


def test_arrivals_are_rejected_when_no_replica_of_their_model_is_alive() -> None:
    cluster = Cluster(["a", "b"])
    cluster.arrive(0, "a")
    assert cluster.lose(0) == [Fail(0, "host gone")]
    assert cluster.arrive(1, "a") == [Reject(1, "no replica of a is alive")]
    assert cluster.arrive(2, "b")[0] == Assign(2, 1, "0 outstanding")


def test_losing_an_idle_replica_fails_nobody() -> None:
    assert Cluster(["m", "m"]).lose(1) == []


def test_the_clock_never_goes_back() -> None:
    cluster = Cluster(["m"])
    cluster.arrive(0)
    with pytest.raises(AssertionError, match="clock went back"):
        cluster.controller.handle(0, Ran(0, 0, 1, ()))


def test_replicas_are_numbered_from_zero_in_order() -> None:
    replica = Replica(id=1, model="m", layers=LayerRange(0, 2), gpus=(0,), kv_blocks=16, block_tokens=4)
    with pytest.raises(AssertionError):
        compose([replica], LeastOutstanding(), lambda _: ChunkedPrefill(4, 8), admission=AdmitAll())


def test_every_replica_gets_its_own_batcher() -> None:
    asked: list[int] = []

    def batcher_for(replica: Replica) -> ChunkedPrefill:
        asked.append(replica.id)
        return ChunkedPrefill(4, 8)

    replicas = [
        Replica(id=id, model="m", layers=LayerRange(0, 2), gpus=(id,), kv_blocks=16, block_tokens=4)
        for id in range(3)
    ]
    compose(replicas, LeastOutstanding(), batcher_for, admission=AdmitAll())
    assert asked == [0, 1, 2]
