"""Runs of some layers: parts of a pass add up, residents wait, a token comes last, cold replicas run them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.models.load_units import model_units
from serving.vocabulary.actions import (
    Action,
    AllocateGpus,
    Assign,
    Chunk,
    Interrupt,
    JoinBatch,
    Load,
    Reject,
    Run,
    Send,
)
from serving.vocabulary.events import Arrived, Event, Loaded, Opened, Ran, Sent
from serving.vocabulary.request import Request
from simcore.replica.lifetime import Lifetime
from simcore.replica.machine import Machine
from simcore.simulation import Simulation
from tests.worlds.data_planes import SHAPE, plane
from tests.worlds.strategies import GPU_NS, NS, SUB_NS, toy_rows
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Collected

L = SHAPE.layers
# Some ms for a step, of odd fractions of a ns.
ROWS = ToyRows(2_000_003 * NS + 7, 300_001 * NS, 9_001 * NS, 3_000_017 * NS, 200_003 * NS + 11)


class Bench:
    """Machines by hand: every run is begun where the one before it ended."""

    def __init__(self, rows: ToyRows, outputs: Sequence[int], layers: int = L, machines: int = 1) -> None:
        self.seen = Collected()
        self.lives = {
            id: Lifetime(Request(id, 0, 3 + id, 10**6, "m"), output) for id, output in enumerate(outputs)
        }
        self.machines = [
            Machine(n, rows, self.lives, self.seen, model_layers=layers) for n in range(machines)
        ]
        self.now_ns = 0

    def run(self, run: Run) -> list[Ran]:
        """To its end; the facts."""
        machine = self.machines[run.replica]
        machine.start(self.now_ns, run)
        facts = []
        while machine.run is not None:
            self.now_ns = machine.due_ns
            facts.append(machine.complete())
        return facts

    def pause(self, machine: int = 0) -> None:
        """Nothing follows on that machine for now."""
        self.machines[machine].idle()

    def prompts(self, *requests: int) -> tuple[Chunk, ...]:
        """All of these prompts."""
        return tuple([(id, 0, self.lives[id].request.prompt_tokens) for id in requests])


def part(
    chunks: tuple[Chunk, ...], layers: tuple[int, int] | None, replica: int = 0, hand_over: bool = False
) -> Run:
    """Those layers of the prompts; None: an ordinary pass that leaves the residents out."""
    return Run(replica, 0, chunks, False, 1, True, "test", hand_over, layers)


def decodes(steps: int) -> Run:
    return Run(0, 0, (), True, steps, True, "test")


@st.composite
def splits(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """(layers of a model, the stretches that a pass over it is cut into)."""
    layers = draw(st.integers(1, 80))
    cuts = draw(st.sets(st.integers(1, layers), max_size=8)) | {0, layers}
    return layers, list(pairwise(sorted(cuts)))


@st.composite
def any_rows(draw: st.DrawFn) -> ToyRows:
    rows = draw(toy_rows(draw(st.sampled_from((SUB_NS, GPU_NS))), False, False))
    return replace(rows, mixed_intercept=rows.mixed_intercept + 80)  # so that every layer takes some time


@given(split=splits(), rows=any_rows(), outputs=st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_the_parts_of_a_pass_end_when_the_whole_would(
    split: tuple[int, list[tuple[int, int]]], rows: ToyRows, outputs: list[int]
) -> None:
    layers, parts = split
    whole, cut = Bench(rows, outputs, layers), Bench(rows, outputs, layers)
    chunks = whole.prompts(*range(len(outputs)))
    (ran,) = whole.run(part(chunks, None))
    for stretch in parts:
        (last,) = cut.run(part(chunks, stretch))
        assert last.steps == 1 and not last.running
        if stretch[1] < layers:
            assert not last.finished and all(life.generated == 0 for life in cut.lives.values())
    assert cut.now_ns == whole.now_ns, "not one ns more or less, fractions included"
    assert last.finished == ran.finished == tuple(id for id, output in enumerate(outputs) if output == 1)
    assert cut.seen.done == whole.seen.done
    if whole.lives:  # those with more tokens decode on
        for bench in (whole, cut):
            while bench.lives:
                bench.run(decodes(10**6))
    assert cut.seen.done == whole.seen.done and cut.seen.all_gaps == whole.seen.all_gaps


@given(split=splits(), rows=any_rows(), output=st.integers(2, 4))
def test_across_two_machines_every_change_rounds_down_by_less_than_a_ns(
    split: tuple[int, list[tuple[int, int]]], rows: ToyRows, output: int
) -> None:
    layers, parts = split
    whole, cut = Bench(rows, [output], layers), Bench(rows, [output], layers, machines=2)
    chunks = whole.prompts(0)
    whole.run(part(chunks, None, hand_over=True))
    for number, stretch in enumerate(parts):
        cut.run(part(chunks, stretch, replica=number % 2, hand_over=True))
        cut.pause(number % 2)
    changes = len(parts) - 1
    assert whole.now_ns - changes <= cut.now_ns <= whole.now_ns
    assert sum(machine.busy_ns for machine in cut.machines) == cut.now_ns
    life = cut.lives[0]
    assert (life.first_token_ns, life.generated) == (cut.now_ns, 1)
    with pytest.raises(AssertionError, match="without resident requests"):
        cut.run(decodes(1))  # nobody decodes where prompts are handed over
    fresh = Bench(rows, [output], layers)
    fresh.lives[0] = life
    fresh.machines[0] = Machine(0, rows, fresh.lives, fresh.seen, model_layers=layers)
    fresh.now_ns = cut.now_ns
    fresh.machines[0].join_batch(fresh.now_ns, (0,))
    fresh.run(decodes(10))
    assert fresh.seen.done[0][1:3] == (output, cut.now_ns)


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[int, list[tuple[tuple[int, int], int]]]:
    """(layers, each stretch of a pass with how many decode steps stand after it)."""
    layers, parts = draw(splits())
    return layers, [(stretch, draw(st.integers(0, 2))) for stretch in parts]


@given(case=interleaved(), rows=any_rows(), outputs=st.lists(st.integers(2, 6), min_size=1, max_size=4),
       hand_over=st.booleans())  # fmt: skip
def test_gaps_reach_from_token_to_token_over_the_parts_between(
    case: tuple[int, list[tuple[tuple[int, int], int]]], rows: ToyRows, outputs: list[int], hand_over: bool
) -> None:
    layers, parts = case
    bench = Bench(rows, [*outputs, 3], layers)
    machine, new = bench.machines[0], len(outputs)
    bench.run(part(bench.prompts(*range(new)), None))
    last_fixed = dict.fromkeys(range(new), machine._due_fixed)
    expected: list[int] = []

    def decode() -> None:
        decoding = [id for id in last_fixed if id in bench.lives]
        if decoding:
            bench.run(decodes(1))
            expected.extend([machine._due_fixed - last_fixed[id] for id in decoding])
            last_fixed.update(dict.fromkeys(decoding, machine._due_fixed))

    for stretch, steps in parts:
        bench.run(part(bench.prompts(new), stretch, hand_over=hand_over))
        if stretch[1] == layers and not hand_over:
            last_fixed[new] = machine._due_fixed
        for _ in range(steps):
            decode()
    for _ in range(max(outputs)):
        decode()
    assert list(bench.lives) == [new] * hand_over
    assert sorted(bench.seen.all_gaps) == sorted(expected)


@pytest.mark.parametrize("hand_over", [False, True])
def test_the_gaps_of_residents_are_those_of_a_prefill_first_pass(hand_over: bool) -> None:
    found = []
    for stretches in ([None], [(0, L)], [(0, 1), (1, 7), (7, L)]):
        bench = Bench(ROWS, [9, 4, 5])
        bench.run(part(bench.prompts(0, 1), None))
        bench.run(decodes(2))
        for stretch in stretches:
            bench.run(part(bench.prompts(2), stretch, hand_over=hand_over))
        while len(bench.lives) > hand_over:
            bench.run(decodes(100))
        found.append((bench.seen.done, bench.seen.all_gaps, bench.now_ns))
    assert found[0] == found[1] == found[2]
    step = ROWS.mixed(0, 0, ((2, 0, 5),))
    assert [gap > step for gap in found[0][1]].count(True) == 2, "both residents waited once"


def test_a_pause_with_residents_counts_in_their_gaps() -> None:
    """A replica that waits for its parameters may have residents that decode on after it."""
    bench = Bench(ROWS, [3])
    bench.run(part(bench.prompts(0), (0, L)))
    bench.pause()
    ended_ns, bench.now_ns = bench.now_ns, bench.now_ns + 5_000_000
    step = ROWS.decode(1)[0][1] + ROWS.slope * 4
    bench.run(decodes(1))
    (gap,) = bench.seen.all_gaps
    assert gap == (ended_ns + 5_000_000 << 24) + step - ROWS.mixed(0, 0, bench.prompts(0))


@pytest.mark.parametrize("grace_steps", [0, 3])
def test_an_interrupt_changes_nothing(grace_steps: int) -> None:
    bench = Bench(ROWS, [5])
    machine, chunks = bench.machines[0], bench.prompts(0)
    due_ns = machine.start(0, part(chunks, (0, 4)))
    assert due_ns == ROWS.mixed(0, 0, chunks) * 4 // L >> 24
    assert not machine.interrupt(due_ns // 2, grace_steps)
    assert machine.due_ns == due_ns
    assert machine.complete() == Ran(0, 0, 1, (), False, 0)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"layers": (0, L + 1)}, f"of a model that has {L}"),
        ({"layers": (3, 3)}, "is to run layers 3 to 3"),
        ({"layers": (-1, 3)}, "is to run layers -1 to 3"),
        ({"max_steps": 2}, "write one step, with prompts and without decodes"),
        ({"decode": True}, "write one step, with prompts and without decodes"),
        ({"chunks": ()}, "write one step, with prompts and without decodes"),
    ],
)
def test_what_is_no_run_of_layers_is_refused(wrong: dict[str, object], sentence: str) -> None:
    bench = Bench(ROWS, [5])
    run = replace(part(bench.prompts(0), (0, 4)), **wrong)
    with pytest.raises(AssertionError, match=sentence):
        bench.machines[0].start(0, run)


def test_a_pass_too_short_to_be_cut_is_refused() -> None:
    bench = Bench(ToyRows(1, 0, 0, L - 1, 0), [5])
    with pytest.raises(AssertionError, match=f"a pass of {L - 1} units of fixed point is too short"):
        bench.machines[0].start(0, part(bench.prompts(0), (0, 1)))


# In a world with links: replica 0 has everything, replica 1 comes cold.


class Script:
    """A controller that answers every fact as written down, and keeps what it was told."""

    elastic = step_counts = None

    def __init__(self, answer: Callable[[Event], Sequence[Action]]) -> None:
        self.told: list[tuple[int, Event]] = []
        self._answer = answer

    def handle(self, now_ns: int, event: Event) -> list[Action]:
        self.told.append((now_ns, event))
        return list(self._answer(event))

    def when(self, event: Event) -> int:
        """The one time at which this was told."""
        (at_ns,) = [at_ns for at_ns, one in self.told if one == event]
        return at_ns


PROMPT = 20
CHUNKS = ((0, 0, PROMPT),)
PLACE = AllocateGpus(1, SHAPE.name, (1,), "both", False, "test")
SEND = Send(0, "activations", (0,), 1, 0, 10**6, "test")
WHOLE = Loaded(0, 0, L, True)


def loading(layers_first: bool = True) -> Load:
    return Load(
        0, SHAPE.name, (("host", 0),), (("replica", 1),), (), True, True, "test", layers_first=layers_first
    )


def world(
    answer: Callable[[Event], Sequence[Action]], rows: ToyRows, output: int = 1
) -> tuple[Script, Collected]:
    script, seen = Script(answer), Collected()
    data = plane(gpus_of=[(0,)])
    request = Request(0, 0, PROMPT, 8, SHAPE.name)
    # Type: ignore[arg-type]
    simulation = Simulation(
        script, [(request, output)], [rows], seen, journal=None, data_plane=data, rows_of={SHAPE.name: rows}
    )
    simulation.run()
    return script, seen


@pytest.mark.parametrize("what", ["activations", "kv"])
def test_a_cold_replica_runs_the_layers_it_has_and_sends_on(what: str) -> None:
    sends = replace(SEND, what=what)

    def answer(event: Event) -> Sequence[Action]:
        match event:
            case Opened():
                return [PLACE, loading()]
            case Arrived():
                return [Assign(0, 1, "test")]
            case Loaded(layers=3, fully_loaded=False):
                return [part(CHUNKS, (0, 3), replica=1)]
            case Ran(replica=1):
                return [sends]
            case Sent():
                return [part(CHUNKS, (3, L))]
        return []

    script, seen = world(answer, ROWS)
    begun_ns = script.when(Loaded(0, 0, 3, False))
    pass_ns = ROWS.mixed(0, 0, CHUNKS) >> 24
    (ran_ns,) = [at_ns for at_ns, event in script.told if event == Ran(1, 0, 1, (), False, begun_ns)]
    assert ran_ns - begun_ns == pytest.approx(pass_ns * 3 / L, abs=1)
    assert ran_ns < script.when(WHOLE)
    sent_ns = script.when(Sent(0, 10**6, ""))
    assert ran_ns < sent_ns < script.when(WHOLE)
    (replica, tokens, first_token_ns, _, _) = seen.done[0]
    assert (replica, tokens) == (0, 1)
    assert first_token_ns - sent_ns == pytest.approx(pass_ns * (L - 3) / L, abs=1)
    assert seen.busy_ns == {0: first_token_ns - sent_ns, 1: ran_ns - begun_ns}


def test_nothing_is_held_when_all_is_there_during_a_run_of_layers() -> None:
    """The run of layers ends at its time, and an ordinary one follows at once."""
    slow = replace(ROWS, mixed_intercept=10**12 * NS)  # a pass takes 1000 s, a load one

    def answer(event: Event) -> Sequence[Action]:
        match event:
            case Opened():
                return [PLACE, loading()]
            case Loaded(layers=1, fully_loaded=False):
                return [part(CHUNKS, (0, 1), replica=1)]
            case Loaded(fully_loaded=True):
                return [Interrupt(1, "test")]
            case Ran(finished=()):
                return [part(CHUNKS, None, replica=1)]
        return []

    script, seen = world(answer, slow)
    begun_ns = script.when(Loaded(0, 0, 1, False))
    pass_fixed = slow.mixed(0, 0, CHUNKS)
    assert script.when(WHOLE) < begun_ns + (pass_fixed // L >> 24)
    assert seen.done[0][2] == (begun_ns << 24) + pass_fixed // L + pass_fixed >> 24
    assert seen.busy_ns[1] == seen.done[0][2] - begun_ns


def test_an_ordinary_run_on_a_cold_replica_still_waits_and_its_residents_too() -> None:
    """All layers are there, the embedding is not: what decodes here goes on when it is."""

    def answer(event: Event) -> Sequence[Action]:
        match event:
            case Opened():
                return [PLACE, loading()]
            case Loaded(layers=layers, fully_loaded=False) if layers == L:
                return [part(CHUNKS, (0, L), replica=1)]
            case Ran(finished=(), replica=1):
                return [replace(decodes(1), replica=1)]
        return []

    fast = ToyRows(intercept=10 * NS, per_sequence=0, slope=0, mixed_intercept=1000 * NS, per_token=0)
    script, seen = world(answer, fast, output=2)
    begun_ns, rounded_up_ns = script.when(Loaded(0, 0, L, False)), script.when(WHOLE)
    (_, _, first_token_ns, finish_ns, _) = seen.done[0]
    assert first_token_ns == begun_ns + 1000 < rounded_up_ns
    assert rounded_up_ns <= finish_ns <= rounded_up_ns + 10
    assert [gap >> 24 for gap in seen.all_gaps] == [finish_ns - first_token_ns]


@pytest.mark.parametrize("layers_first", [False, True])
def test_a_prompt_overlaps_with_its_load_only_once_the_embedding_is_there(layers_first: bool) -> None:
    def answer(event: Event) -> Sequence[Action]:
        match event:
            case Opened():
                return [PLACE, loading(layers_first), part(CHUNKS, None, replica=1)]
        return []

    rows = ToyRows(NS, 0, 0, 100_000_000 * NS, 0)
    script, seen = world(answer, rows)
    head = model_units(SHAPE)[-1]
    assert head.name == "head"
    # With the embedding first all layers but the last have run by then, and that one while the head came.
    head_ns = round(head.size_bytes / 16)  # 128 Gbps
    expected_ns = 100_000_000 - head_ns if layers_first else 0
    assert expected_ns >= 0 and head_ns > 100_000_000 / L
    assert seen.done[0][2] - script.when(WHOLE) == pytest.approx(expected_ns, abs=3)


def test_layers_that_are_not_there_are_not_run() -> None:
    def answer(event: Event) -> Sequence[Action]:
        match event:
            case Opened():
                return [PLACE, loading()]
            case Loaded(layers=2, fully_loaded=False):
                return [part(CHUNKS, (0, 3), replica=1)]
        return [Reject(0, "test")] if isinstance(event, Arrived) else []

    with pytest.raises(AssertionError, match="replica 1 is to run layers 0 to 3, and has 0 to 2"):
        world(answer, ROWS)


def test_what_a_replica_of_parts_hands_over_decodes_elsewhere() -> None:
    def answer(event: Event) -> Sequence[Action]:
        match event:
            case Opened():
                return [PLACE, loading()]
            case Loaded(layers=5, fully_loaded=False):
                return [part(CHUNKS, (0, 5), replica=1)]
            case Ran(replica=1):
                return [SEND]
            case Sent(transfer=0):
                return [part(CHUNKS, (5, L), hand_over=True)]
            case Ran(replica=0, finished=()):
                return [JoinBatch(0, (0,), "test"), decodes(8)]
        return []

    _, seen = world(answer, ROWS, output=3)
    assert seen.done[0][:2] == (0, 3) and len(seen.all_gaps) == 2
