"""Stock engines in the control plane: dispatch by what is known of them, moves, losses, journal."""

from hypothesis import given
from hypothesis import strategies as st

from policies.llumnix.dispatch import Freeness
from policies.llumnix.migration import Llumnix
from serving.elastic.gauges import StockGauges
from serving.record.invariants import check
from serving.services.stock.requests import StockEngine, StockRequest
from serving.vocabulary.actions import Action, Assign, Fail, Migrate, Preempt, Reject, Wake
from serving.vocabulary.events import Arrived, Dropped, Lost, Observed, Opened, Streamed, Woke
from tests.worlds.stock_rig import PERIOD_NS, StockRig, replica, request

BLOCK = 16


def seen(number: int, used: int, running: int = 0, waiting: int = 0) -> Observed:
    return Observed(
        replica=number,
        as_of_ns=1,
        running=running,
        waiting=waiting,
        used_blocks=used,
        total_blocks=100,
        block_tokens=BLOCK,
    )


def test_a_report_is_what_an_engine_told_and_what_came_and_went_since() -> None:
    engine = StockEngine(replica(0))
    for number in (1, 2):
        engine.add(StockRequest(request(number), 0))
    engine.got(1, 1)
    engine.observe(seen(0, used=40, running=3, waiting=1))  # of 4 requests there 2 are ours
    first = engine.report()
    assert (first.free_blocks, first.running, first.waiting) == (60, 1 + 2, 1)
    assert (first.first_waiting_tokens, first.waiting_tokens) == (32, 32)
    engine.got(1, 32)
    engine.got(2, 1)
    later = engine.report()
    assert (later.running, later.waiting, later.waiting_tokens) == (2 + 2, 0, 0)
    assert later.free_blocks == 60 - (32 + 33) // BLOCK
    engine.remove(1)
    assert engine.report().free_blocks == 60 - (32 + 33 - 65) // BLOCK


def test_without_a_word_from_the_engine_its_own_requests_are_all_that_is_known() -> None:
    engine = StockEngine(replica(0))
    assert engine.report().free_blocks == 100
    engine.add(StockRequest(request(1), 0))
    engine.got(1, 1)
    assert engine.report().free_blocks == 100 - 3  # 33 tokens


def test_freeness_sends_to_the_engine_that_told_of_more_room() -> None:
    rig = StockRig(3, dispatcher=Freeness(rule="paper", reports_at="changes"))
    rig.arrive(1, 2, 3)
    for number in range(3):
        rig.handle(Streamed(number, ((number + 1, 1),), ()))
    for number, used in enumerate((90, 20, 50)):
        rig.handle(seen(number, used, running=1))
    (assigned,) = rig.controller.handle(rig.now_ns, Arrived(request(4)))
    assert isinstance(assigned, Assign) and assigned.replica == 1
    check(rig.controller)


def test_llumnix_pairs_engines_by_what_they_told_and_the_request_is_aborted_and_sent_elsewhere() -> None:
    rig = StockRig(2, migrator=Llumnix(rule="paper", rounds=1))
    rig.handle(Opened())
    rig.arrive(1, 2)
    rig.handle(Streamed(0, ((1, 5),), ()))
    rig.handle(seen(0, used=100, running=1))
    rig.handle(seen(1, used=0))
    rig.now_ns = 10 * PERIOD_NS
    told = rig.controller.handle(rig.now_ns, Woke())
    why = "freeness 0.0 against 1568.0; the shortest, 37 tokens"
    assert told[:2] == [Preempt(0, 1, why), Assign(1, 1, why)]
    assert [type(one) for one in told[2:]] == [Migrate, Wake]
    assert rig.stock.stock.requests[1].known_tokens == 37
    rig.handle(Streamed(1, ((1, 4), (2, 1)), (1,)))
    assert rig.stock.moved == 1 and rig.controller.finished == 1


def test_requests_of_a_lost_engine_fail_where_they_are_not_to_go_on() -> None:
    rig = StockRig(2, elsewhere=False)
    rig.arrive(1, 2)
    actions = rig.controller.handle(rig.now_ns, Lost(0, "killed"))
    assert actions == [Fail(1, "killed")] and rig.controller.failed == 1
    check(rig.controller)


def test_with_the_last_engine_requests_fail_and_those_that_come_are_refused() -> None:
    rig = StockRig(1)
    rig.arrive(1)
    assert rig.handle(Lost(0, "killed")) == ["Fail"]
    (refused,) = rig.controller.handle(rig.now_ns, Arrived(request(2)))
    assert isinstance(refused, Reject) and refused.reason == "no server of m is alive"
    check(rig.controller)


def test_too_long_for_an_engine_is_refused() -> None:
    rig = StockRig(1)
    (refused,) = rig.controller.handle(0, Arrived(request(2, prompt=1600, cap=1)))
    assert isinstance(refused, Reject) and "1600 KV tokens" in refused.reason


plays = st.lists(st.tuples(st.sampled_from("adfslrmo"), st.integers(0, 2), st.integers(1, 5)), max_size=60)


@given(plays)
def test_whatever_engines_tell_the_books_agree(play: list[tuple[str, int, int]]) -> None:
    """The invariants hold after every event, and requests that are in flight are at an engine."""
    rig, ids = StockRig(3), iter(range(1000))
    rig.handle(Opened())
    alive = {0, 1, 2}
    for what, number, count in play:
        own = list(rig.stock.stock.by_replica[number].own)
        some = own[: max(1, len(own) // 2)]
        if what == "a":
            rig.arrive(next(ids))
        elif number not in alive:
            continue
        elif what == "s":
            rig.handle(Streamed(number, tuple((one, count) for one in some), ()))
        elif what == "f":
            rig.handle(Streamed(number, tuple((one, count) for one in some), tuple(sorted(some))))
        elif what in "dr" and own:
            rig.handle(Dropped(number, own[0], what == "r", "cause"))
        elif what == "l" and count == 1:
            alive.discard(number)
            rig.handle(Lost(number, "killed"))
        elif what == "m" and len(alive) > 1:
            rig.migrator.pairs = [(number, min(alive - {number}))]
            rig.handle(Woke())
            rig.migrator.pairs = []
        elif what == "o":
            rig.handle(seen(number, count * 20, count, count))
        check(rig.controller)


def test_requests_wait_while_no_engine_runs_and_go_to_the_one_that_starts() -> None:
    rig = StockRig(1, starts=True)
    assert rig.handle(Arrived(request(1))) == ["Assign"]
    rig.handle(Streamed(0, ((1, 5),), ()))
    assert rig.handle(Lost(0, "killed")) == [] and rig.handle(Arrived(request(2))) == []
    check(rig.controller)
    stock = rig.stock
    assert (stock.queued, stock.running, stock.backlog_tokens) == (2, 0, 32 + 5 + 32)
    assert stock.queue_head_ns() == 0
    actions: list[Action] = []
    stock.join(replica(1), "both", actions)
    assert actions == [
        Assign(1, 1, "its server is lost (killed): 0 outstanding"),
        Assign(2, 1, "1 outstanding"),
    ]
    assert (stock.queued, stock.running, stock.queue_head_ns()) == (0, 2, None)
    assert rig.handle(Arrived(request(3, prompt=5000))) == ["Reject"], "too long for any engine"


def test_scalers_see_what_an_engine_told_else_what_was_sent_to_it() -> None:
    rig = StockRig(2)
    gauges = StockGauges(rig.stock)
    rig.arrive(1, 2, 3)  # 1 and 3 at engine 0
    rig.handle(Streamed(0, ((1, 1),), ()))
    assert gauges.load(replica(0), 0) == (1, 1, 3 / 100, 32, 32)  # 33 tokens in blocks of 16
    assert gauges.first_arrival_ns(0) == 0 and gauges.first_arrival_ns(1) == 0
    rig.handle(Observed(0, 1, running=5, waiting=2, used_blocks=40, total_blocks=100, block_tokens=16))
    assert gauges.load(replica(0), 0) == (2, 5, 0.4, 32, 32), "other clients are there too"
    assert gauges.prefix_tokens(0) == (0, 0)
    rig.handle(Observed(0, 2, 0, 0, 0, 0, 0, 0, 90, 30))
    assert gauges.prefix_tokens(0) == (90, 30)
    assert gauges.load(replica(0), 0).kv_use == 3 / 100, "it says nothing of its memory"


def test_requests_left_after_the_grace_period_go_elsewhere_or_fail() -> None:
    for elsewhere in (True, False):
        rig = StockRig(2, grace=elsewhere)
        rig.arrive(1, 2, 3)  # 1 and 3 at engine 0
        rig.handle(Streamed(0, ((1, 5),), ()))
        rig.stock.leave(0, [])
        actions: list[Action] = []
        why = "the grace period of its instance ended"
        rig.stock.evict(0, why, actions)
        if elsewhere:
            told = f"{why}: 1 outstanding", f"{why}: 2 outstanding"
            first = [Preempt(0, 1, why), Assign(1, 1, told[0])]
            assert actions == [*first, Preempt(0, 3, why), Assign(3, 1, told[1])]
            assert rig.stock.stock.requests[1].known_tokens == 37
        else:
            assert actions == [Fail(1, why), Fail(3, why)]
            rig.handle(seen(1, used=1))
            assert rig.controller.failed == 2 and set(rig.controller.requests) == {2}
        check(rig.controller)
        assert rig.stock.evicted == 2 and rig.stock.outstanding(0) == 0
        rig.stock.evict(0, why, actions)
        assert rig.stock.evicted == 2, "once"
