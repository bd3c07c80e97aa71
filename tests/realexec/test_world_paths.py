"""A language model in stages on told workers: which passes they are asked for, when a round is told."""

from types import SimpleNamespace

from realexec.messages import Forget, Hold, RunStage, StageDone
from realexec.world.doubts import Doubts
from serving.vocabulary.actions import Assign, Fail, Interrupt, Run
from serving.vocabulary.events import Lost, LostHost, Ran
from serving.vocabulary.layers import Part
from tests.worlds.told_workers import ToldWorld

FIRST, REST = (0, 1), (1, 3)
HELD = Hold(7, (1, 2, 3), (), 5)
PROMPT = ((7, 0, 3),)


def two_stages() -> ToldWorld:
    """Replicas 0 and 2 have the first layer, 1 and 3 the other two."""
    return ToldWorld(4, 4, {one: Part("tiny", *(REST if one % 2 else FIRST)) for one in range(4)})


def run(batch: int, chunks: tuple, path: tuple[int, ...], steps: int = 1 << 40) -> Run:
    return Run(path[0], 0, chunks, True, steps, True, "why", micro_batch=batch, path=path)


def ended(
    told: ToldWorld, number: int, tokens: dict | None = None, finished: tuple[int, ...] = (), cause: str = ""
) -> tuple[Ran | None, list]:
    """The worker says so; what is told of it, and what is sent because of it."""
    before = len(told.pool.log)
    place = (64, 128) if not tokens else ()
    message = StageDone(number, 5, 9, tokens or {}, finished, place, 16, cause)
    return told.world.paths.done(message, 20, 0), list(told.sent_since(before))


def begun(told: ToldWorld, batch: int = 0, path: tuple[int, ...] = (0, 1), request: int = 7) -> None:
    """A request's prompt is computed: its batch decodes."""
    told.arrive(request)
    chunks = ((request, 0, 3),)
    told.does(Assign(request, path[0], "head"), run(batch, chunks, path))
    number = told.world.paths.passes - 1
    ended(told, number)
    assert ended(told, number + 1, {request: (42,)})[0] == Ran(path[0], 0, 1, (), micro_batch=batch)


def test_a_prompt_passes_the_stages_and_is_told() -> None:
    told = two_stages()
    told.arrive(7)
    assert told.does(Assign(7, 0, "head"), run(0, PROMPT, (0, 1))) == [
        (0, HELD),
        (1, HELD),
        (0, RunStage(0, 0, PROMPT, (), FIRST, -1, ())),
    ]
    assert told.world.is_busy
    assert ended(told, 0) == (None, [(1, RunStage(1, 0, PROMPT, (), REST, 0, (64, 128)))])
    assert ended(told, 1, {7: (42,)}) == (Ran(0, 0, 1, (), micro_batch=0), [])
    assert not told.world.is_busy and told.tracker.generated(7) == (42,)
    assert told.world.paths.activation_bytes == 32 and told.world.paths.stages == {FIRST, REST}


def test_rounds_go_on_by_themselves_until_a_request_has_ended() -> None:
    told = two_stages()
    begun(told)
    assert told.does(run(0, (), (0, 1))) == [(0, RunStage(2, 0, (), ((7, 42),), FIRST, -1, ()))]
    assert ended(told, 2) == (None, [(1, RunStage(3, 0, (), ((7, 42),), REST, 0, (64, 128)))])
    assert ended(told, 3, {7: (43,)}) == (None, [(0, RunStage(4, 0, (), ((7, 43),), FIRST, -1, ()))])
    ended(told, 4)
    report, sent = ended(told, 5, {7: (44,)}, (7,))
    assert report == Ran(0, 0, 2, (7,), micro_batch=0)
    assert sent == [(0, Forget(7))], "the worker of the last stage has forgotten it by itself"
    assert told.tracker.unfinished == 0


def test_an_interrupt_has_the_next_round_told_whosever_it_is() -> None:
    told = two_stages()
    begun(told)
    begun(told, 1, (2, 3), 8)
    told.does(Interrupt(0, "no batch goes round"))
    told.does(run(0, (), (0, 1)), run(1, (), (2, 3)), Interrupt(0, "arrival"))
    for number in (4, 5):  # their first stages; passes 6 and 7 are of their second ones
        ended(told, number)
    assert ended(told, 7, {8: (50,)})[0] == Ran(2, 0, 1, (), micro_batch=1)
    assert ended(told, 6, {7: (43,)})[0] is None, "one report was asked for"
    ended(told, 8)
    told.does(Interrupt(2, "arrival"))
    assert ended(told, 9, {7: (44,)})[0] == Ran(0, 0, 2, (), micro_batch=0), "rounds not told yet count"


def test_so_many_rounds_as_are_allowed() -> None:
    told = two_stages()
    begun(told)
    told.does(run(0, (), (0, 1), steps=2))
    ended(told, 2)
    assert ended(told, 3, {7: (43,)})[0] is None
    ended(told, 4)
    assert ended(told, 5, {7: (44,)})[0] == Ran(0, 0, 2, (), micro_batch=0)


def test_a_number_that_is_given_again_is_another_batch() -> None:
    told = two_stages()
    begun(told)
    told.arrive(8)
    sent = told.does(Assign(8, 2, "head"), run(0, ((8, 0, 3),), (2, 3)))
    assert sent[-1] == (2, RunStage(2, 0, ((8, 0, 3),), (), FIRST, -1, ())), "request 7 is not in it"


def test_a_lost_worker_takes_the_batches_whose_path_it_is_on_and_no_other() -> None:
    told = two_stages()
    begun(told)
    begun(told, 1, (2, 3), 8)
    told.does(run(0, (), (0, 1)), run(1, (), (2, 3)))
    told.world.lose(1, "killed", has_hosts=True)
    assert told.facts() == [Lost(1, "killed"), LostHost(1, "killed")]
    assert told.does(Fail(7, "killed")) == [(0, Forget(7))]
    assert ended(told, 4) == (None, []), "what its first stage computed is of no use"
    assert ended(told, 5)[1] == [(3, RunStage(6, 1, (), ((8, 42),), REST, 2, (64, 128)))]
    assert ended(told, 6, {8: (43,)}, (8,))[0] == Ran(2, 0, 1, (8,), micro_batch=1)
    assert (told.tracker.failed, told.tracker.unfinished) == (1, 0)


def test_a_worker_that_cannot_read_from_one_that_lives_is_lost() -> None:
    told = two_stages()
    begun(told)
    told.does(run(0, (), (0, 1)))
    ended(told, 2)
    ends: list[int] = []
    told.pool.workers[1].process = SimpleNamespace(kill=lambda: ends.append(1))
    assert ended(told, 3, cause="the link broke") == (None, [])
    assert ends == [1] and not told.world.is_busy, "its end is told as that of any other"


def test_what_is_told_of_a_lost_peer_waits_for_the_word_of_the_loss() -> None:
    told = two_stages()
    doubts = Doubts(told.world.slots)
    done = StageDone(3, 0, 0, {}, (), (), 0, "gone", 0)
    assert doubts.puts_off(1, done) and doubts.settled() is None
    told.world.lose(0, "killed", has_hosts=False)
    assert doubts.settled() == (1, done) and not doubts


def test_a_pass_that_nobody_ends_is_found() -> None:
    told = two_stages()
    begun(told)
    told.does(run(0, (), (0, 1)), now_ns=100)
    paths = told.world.paths
    assert paths.silent(150, 100) == [] and paths.silent(200, 100) == [0] and paths.silent(250, 100) == []
