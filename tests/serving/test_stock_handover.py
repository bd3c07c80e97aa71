"""Stock engines that prefill or decode: who gets a request, in which order, and whose books it is in."""

from hypothesis import given
from hypothesis import strategies as st

from serving.record.invariants import check
from serving.services.stock.handover import HandOverParts
from serving.vocabulary.actions import Assign, Reject, Send
from serving.vocabulary.events import Arrived, Dropped, Lost, Observed, Sent, Streamed
from serving.vocabulary.kv_bytes import KvBytes
from tests.worlds.stock_rig import StockRig, request


def rig(engines: int = 4, together: bool = False, elsewhere: bool = True) -> StockRig:
    return StockRig(engines, elsewhere, hand_over=HandOverParts(KvBytes(10), together))


def test_a_prompt_goes_where_fewest_tokens_wait_and_its_kv_where_most_memory_is_free() -> None:
    one = rig()
    first = one.controller.handle(0, Arrived(request(1, prompt=64)))
    second = one.controller.handle(0, Arrived(request(2, prompt=32)))
    third = one.controller.handle(0, Arrived(request(3, prompt=16)))
    assert [a.replica for (a,) in (first, second, third) if isinstance(a, Assign)] == [0, 1, 1]
    one.controller.handle(
        1,
        Observed(
            replica=2, as_of_ns=1, running=1, waiting=0, used_blocks=40, total_blocks=100, block_tokens=16
        ),
    )
    (sent,) = one.controller.handle(2, Streamed(0, ((1, 1),), ()))
    reason = "100 KV blocks are free there, the most"
    assert sent == Send(0, "kv", (1,), 0, 3, 64 * 10, reason), "the first token has no KV yet"
    one.controller.handle(3, Sent(0, 640, ""))
    one.controller.handle(4, Streamed(3, ((1, 2),), (1,)))
    hand_overs = one.stock.hand_overs
    assert hand_overs is not None and hand_overs.done == 1 and one.controller.finished == 1
    check(one.controller)


def test_a_request_of_one_token_is_handed_to_nobody() -> None:
    one = rig()
    one.arrive(1)
    assert one.handle(Streamed(0, ((1, 1),), (1,))) == [] and one.controller.finished == 1


def test_where_both_engines_must_know_of_it_both_are_told_at_once_and_prompts_under_way_count() -> None:
    one = rig(together=True)
    told = [one.controller.handle(0, Arrived(request(number, prompt=64))) for number in (1, 2, 3)]
    assert [[type(action) for action in actions] for actions in told] == [[Assign, Send]] * 3
    assert [(two.source, two.target) for _, two in told if isinstance(two, Send)] == [(0, 2), (1, 3), (0, 2)]
    one.handle(Sent(0, 640, ""))
    one.handle(Streamed(2, ((1, 1),), ()))
    again = one.controller.handle(one.now_ns, Arrived(request(4)))
    assert isinstance(again[0], Assign) and again[0].replica == 0, "64 tokens wait at each, one request here"
    check(one.controller)


def test_without_an_engine_of_a_role_what_comes_is_refused() -> None:
    one = rig(2)
    one.arrive(1)
    assert one.handle(Lost(1, "killed")) == ["Fail"], "its prompt would be computed for nobody"
    (refused,) = one.controller.handle(one.now_ns, Arrived(request(2)))
    assert isinstance(refused, Reject) and refused.reason == "no server of m is alive"


plays = st.lists(st.tuples(st.sampled_from("aapptskfdl"), st.integers(0, 3), st.integers(0, 5)), max_size=60)


@given(plays, st.booleans(), st.booleans())
def test_whatever_engines_tell_the_books_agree(
    play: list[tuple[str, int, int]], together: bool, elsewhere: bool
) -> None:
    """As far as a world may go: what is streamed comes from engines that have a request's KV."""
    one, ids, alive = rig(4, together, elsewhere), iter(range(1000)), {0, 1, 2, 3}
    hand_overs = one.stock.hand_overs
    assert hand_overs is not None
    for what, number, count in play:
        own = list(one.stock.stock.by_replica[number].own)
        ready = [request for request in own if request not in hand_overs.on_the_way]
        coming = [hand_overs.on_the_way[request] for request in own if request in hand_overs.on_the_way]
        if what == "a":
            one.arrive(next(ids))
        elif number not in alive:
            continue
        elif what in "ps" and ready:
            one.handle(Streamed(number, ((ready[0], 1 if number < 2 else count),), ()))
        elif what == "f" and ready:
            one.handle(Streamed(number, ((ready[0], 1),), (ready[0],)))
        elif what == "t" and coming:
            one.handle(Sent(coming[0].transfer, 1, ""))
        elif what == "k" and coming:
            one.handle(Sent(coming[0].transfer, 0, "reset"))
            broken = next(request for request in own if request in hand_overs.on_the_way)
            one.handle(Dropped(number, broken, False, "reset"))
        elif what == "d" and own:
            one.handle(Dropped(number, own[0], count == 0, "cause"))
        elif what == "l" and count == 1:
            alive.discard(number)
            one.handle(Lost(number, "killed"))
        check(one.controller)
