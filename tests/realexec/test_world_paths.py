"""A language model in stages on told workers: which rounds they are told of, and what they tell of them."""

from types import SimpleNamespace

from realexec.wire.messages import Forget, Hold, RoundsDone, RunRounds, StopRounds
from realexec.world.execution import HeldReports
from serving.vocabulary.actions import Assign, Fail, Interrupt, Run
from serving.vocabulary.events import Lost, LostHost, Ran
from serving.vocabulary.layers import Part
from tests.worlds.told_workers import ToldWorld

FIRST, REST = (0, 1), (1, 3)
HELD = Hold(7, (1, 2, 3), (), 5)
PROMPT = ((7, 0, 3),)
# The layers of the first two workers, and of the other two.
PATH, OTHER = ((0, 0, 1), (1, 1, 3)), ((2, 0, 1), (3, 1, 3))
MANY = 1 << 40


def two_stages() -> ToldWorld:
    """Replicas 0 and 2 have the first layer, 1 and 3 the other two."""
    return ToldWorld(4, 4, {one: Part("tiny", *(REST if one % 2 else FIRST)) for one in range(4)})


def run(batch: int, chunks: tuple, path: tuple[int, ...], steps: int = MANY) -> Run:
    return Run(path[0], 0, chunks, True, steps, True, "why", micro_batch=batch, path=path)


def ended(
    told: ToldWorld,
    number: int,
    tokens: dict | None = None,
    finished: tuple[int, ...] = (),
    cause: str = "",
    slot: int = 1,
) -> tuple[Ran | None, list]:
    """The worker in this slot says so; what is told of it, and what is sent because of it."""
    before = len(told.pool.log)
    rounds = len(next(iter((tokens or {}).values()), ()))
    times = tuple(range(20, 20 + 10 * rounds, 10))
    costs = ((3, 0, 2, 0), (4, 16, 3, 1)) if rounds else ()
    message = RoundsDone(
        number=number, ends_ns=times, tokens=tokens or {}, finished=finished, costs=costs, cause=cause
    )
    return told.world.paths.done(slot, message, 0), list(told.sent_since(before))


def begun(told: ToldWorld, batch: int = 0, path: tuple[int, ...] = (0, 1), request: int = 7) -> int:
    """A request's prompt is computed: its batch decodes. Returns the number of its next rounds."""
    told.arrive(request)
    sent = told.does(Assign(request, path[0], "head"), run(batch, ((request, 0, 3),), path))
    number = sent[-1][1].number
    assert ended(told, number, {request: (42,)})[0] == Ran(path[0], 0, 1, (), micro_batch=batch)
    return number + 1


def test_every_worker_of_a_path_is_told_once_and_who_begins_last() -> None:
    told = two_stages()
    told.arrive(7)
    rounds = RunRounds(number=0, batch=0, path=PATH, chunks=PROMPT, decode=(), rounds=1)
    assert told.does(Assign(7, 0, "head"), run(0, PROMPT, (0, 1))) == [
        (0, HELD), (1, HELD), (1, rounds), (0, rounds),
    ]  # fmt: skip
    assert told.world.is_busy
    assert ended(told, 0, {7: (42,)}) == (Ran(0, 0, 1, (), micro_batch=0), [])
    assert not told.world.is_busy and told.tracker.generated(7) == (42,)
    paths = told.world.paths
    assert (paths.activation_bytes, paths.passes, paths.stages) == (16, 2, {FIRST, REST})


def test_rounds_go_on_by_themselves_until_a_request_has_ended() -> None:
    told = two_stages()
    number = begun(told)
    rounds = RunRounds(number=number, batch=0, path=PATH, chunks=(), decode=((7, 42),), rounds=MANY)
    assert told.does(run(0, (), (0, 1))) == [(1, rounds), (0, rounds)]
    report, sent = ended(told, number, {7: (43, 44)}, (7,))
    assert report == Ran(0, 0, 2, (7,), micro_batch=0)
    assert sent == [(0, Forget(7))], "the worker of the last stage has forgotten it by itself"
    assert told.tracker.unfinished == 0
    assert told.world.paths.passes == 6 and told.tracker.generations[7].tokens == (42, 43, 44)


def test_who_goes_on_gets_the_tokens_that_were_told() -> None:
    told = two_stages()
    number = begun(told)
    told.does(run(0, (), (0, 1), steps=2))
    ended(told, number, {7: (43, 44)})
    assert told.does(run(0, (), (0, 1)))[0] == (
        1,
        RunRounds(number=number + 1, batch=0, path=PATH, chunks=(), decode=((7, 44),), rounds=MANY),
    )


def test_an_interrupt_has_the_next_round_told_at_each_worker_where_rounds_end() -> None:
    told = two_stages()
    begun(told)
    begun(told, 1, (2, 3), 8)
    assert told.does(Interrupt(0, "no batch goes round")) == []
    told.does(run(0, (), (0, 1)))
    assert told.does(Interrupt(0, "arrival")) == [(1, StopRounds())]
    told.does(run(1, (), (2, 3)))
    assert told.does(Interrupt(2, "arrival")) == [(1, StopRounds()), (3, StopRounds())]


def test_a_number_that_is_given_again_is_another_batch() -> None:
    told = two_stages()
    number = begun(told)
    told.arrive(8)
    sent = told.does(Assign(8, 2, "head"), run(0, ((8, 0, 3),), (2, 3)))
    assert sent[-1] == (
        2,
        RunRounds(number=number, batch=0, path=OTHER, chunks=((8, 0, 3),), decode=(), rounds=1),
    ), "request 7 is not in it"


def test_a_lost_worker_takes_the_batches_whose_path_it_is_on_and_no_other() -> None:
    told = two_stages()
    first, second = begun(told), begun(told, 1, (2, 3), 8)
    told.does(run(0, (), (0, 1)), run(1, (), (2, 3)))
    first, second = second, second + 1
    told.world.lose(1, "killed", has_hosts=True)
    assert told.facts() == [Lost(1, "killed"), LostHost(1, "killed")]
    assert told.does(Fail(7, "killed")) == [(0, Forget(7))]
    assert ended(told, first, cause="worker 1 is not reached", slot=0) == (None, []), "that is known"
    assert ended(told, second, {8: (43,)}, (8,), slot=3)[0] == Ran(2, 0, 1, (8,), micro_batch=1)
    assert (told.tracker.failed, told.tracker.unfinished) == (1, 0)


def test_a_worker_that_cannot_read_from_one_that_lives_is_lost() -> None:
    told = two_stages()
    number = begun(told)
    told.does(run(0, (), (0, 1)))
    ends: list[int] = []
    told.pool.workers[1].process = SimpleNamespace(kill=lambda: ends.append(1))
    assert ended(told, number, cause="the link broke") == (None, [])
    assert ends == [1] and not told.world.is_busy, "its end is told as that of any other"


def test_what_is_told_of_a_lost_peer_waits_for_the_word_of_the_loss() -> None:
    told = two_stages()
    doubts = HeldReports(told.world.slots)
    done = RoundsDone(number=3, ends_ns=(), tokens={}, finished=(), costs=(), cause="gone", lost_peer=0)
    assert doubts.puts_off(1, done) and doubts.settled() is None
    told.world.lose(0, "killed", has_hosts=False)
    assert doubts.settled() == (1, done) and not doubts


def test_who_says_nothing_while_rounds_are_not_told_is_silent() -> None:
    told = two_stages()
    begun(told)
    told.does(run(0, (), (0, 1)), now_ns=1000)
    paths = told.world.paths
    assert paths.silent(1099, 100) == []
    paths.heard(0, 1050)
    assert paths.silent(1100, 100) == [1], "worker 0 says that its passes go on"
    assert paths.silent(1149, 100) == [], "it was named"
    assert paths.silent(1200, 100) == [0, 1]
