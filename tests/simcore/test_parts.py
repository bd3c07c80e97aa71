"""Replicas that hold some of a model's layers: what they load, what they run, what is sent between them."""

from collections.abc import Sequence
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
    Endpoint,
    Load,
    Reject,
    Run,
    Send,
    Span,
    StopLoad,
)
from serving.vocabulary.events import Arrived, Event, Loaded, LoadStopped, Opened, Ran, Sent
from serving.vocabulary.layers import Part
from serving.vocabulary.request import Request
from serving.vocabulary.units import FRACTION_BITS
from simcore.data_plane.data_plane import DataPlane
from simcore.data_plane.residency import Residency
from simcore.replica.machine import PartSteps
from simcore.simulation import Simulation
from tests.worlds.data_planes import GBPS, MODEL_BYTES, SHAPE, UNITS, load, plane, told
from tests.worlds.refusals import refuses
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Collected

NS = 1 << FRACTION_BITS
L = SHAPE.layers
LAYER_BYTES = UNITS[1].size_bytes
PCIE = 128 * GBPS  # from a host's memory; between GPUs of a host twice as much
BETWEEN_GPUS = 256 * GBPS
ROWS = ToyRows(intercept=NS, per_sequence=0, slope=0, mixed_intercept=3_200_000 * NS + 7, per_token=0)
PROMPT = 100
CHUNKS = ((0, 0, PROMPT),)


def part_bytes(first: int, last: int) -> int:
    return sum(unit.size_bytes for unit in model_units(SHAPE, layers=range(first, last)))


def place(replica: int, gpu: int, layers: Span, warm: bool = False) -> AllocateGpus:
    return AllocateGpus(replica, SHAPE.name, (gpu,), "both", warm, "test", layers)


def loads(layers: Span, source: Endpoint, target: int, id: int = 0, first: bool = False) -> Load:
    return replace(load(source, ("replica", target), id, True), layers=layers, layers_first=first)


def placed(*layers: Span, warm: bool = False) -> DataPlane:
    """Replica n on GPU n."""
    data = plane(gpus_of=[])
    for number, own in enumerate(layers):
        data.carry_out(0, place(number, number, own, warm))
    return data


# What is loaded.


@pytest.mark.parametrize("layers", [(8, 16), (0, 8), (24, 32), (5, 6)])
def test_a_load_of_some_layers_moves_their_bytes_and_reports_them(layers: Span) -> None:
    first, last = layers
    data = placed(layers)
    facts = told(data, (0.0, loads(layers, ("host", 0), 0)))
    assert facts[-1][0] == pytest.approx(part_bytes(first, last) / PCIE, abs=1e-6)
    assert facts[-1][1] == Loaded(0, 0, last - first, True, first)
    ends_with_head = last == L  # else the last layer is told with everything
    assert [fact for _, fact in facts[:-1]] == [
        Loaded(0, 0, count, False, first) for count in range(1, last - first + ends_with_head)
    ]
    (record,) = data.records
    assert (record.size_bytes, record.part) == (part_bytes(first, last), Part(SHAPE.name, first, last))
    assert data.residency.has_layers(("replica", 0), SHAPE.name, first, last)
    assert data.residency.has(("replica", 0), Part(SHAPE.name, 0, L)) is (layers == (0, L))


def test_the_embedding_comes_with_layer_0_and_the_head_with_the_last_layer() -> None:
    assert part_bytes(8, 16) == 8 * LAYER_BYTES
    assert part_bytes(0, 8) == 8 * LAYER_BYTES + UNITS[0].size_bytes
    assert part_bytes(24, 32) == 8 * LAYER_BYTES + UNITS[-1].size_bytes
    assert sum(part_bytes(first, first + 8) for first in range(0, L, 8)) == MODEL_BYTES


def test_a_stopped_load_says_which_layers_are_there() -> None:
    data = placed((8, 16))
    after_s = 2.5 * LAYER_BYTES / PCIE
    facts = told(data, (0.0, loads((8, 16), ("host", 0), 0)), (after_s, StopLoad(0, "enough")))
    assert facts[-1][1] == LoadStopped(0, 0, 2, "enough", 8)
    assert data.residency.has_layers(("replica", 0), SHAPE.name, 8, 10)
    assert not data.residency.has_layers(("replica", 0), SHAPE.name, 8, 11)


@pytest.mark.parametrize("layers_first", [False, True])
def test_a_replica_that_loads_a_whole_model_passes_on_the_layers_of_a_part(layers_first: bool) -> None:
    """Layer 8 leaves when it is there, whatever came before it to the source alone."""
    data = placed((0, L), (8, 16))
    whole = loads((0, L), ("host", 0), 0, 0, layers_first)
    facts = told(data, (0.0, whole), (0.0, loads((8, 16), ("replica", 0), 1, 1)))
    times = {fact.layers: at_s for at_s, fact in facts if isinstance(fact, Loaded) and fact.load == 1}
    embedding = 0 if layers_first else UNITS[0].size_bytes
    there_s = [(embedding + layer * LAYER_BYTES) / PCIE for layer in range(9, 17)]
    assert min(times) == 1 and max(times) == 8
    expected = [at_s + LAYER_BYTES / BETWEEN_GPUS for at_s in there_s]
    assert [times[count] for count in range(1, 9)] == pytest.approx(expected, abs=1e-6)


def test_a_source_sends_what_it_kept_and_what_still_comes() -> None:
    """Layers 0 to 8 are kept from a load that was stopped; another load brings all of them again."""
    data = placed((0, 16), (4, 12))
    stop_s = (UNITS[0].size_bytes + 8.5 * LAYER_BYTES) / PCIE
    again = loads((0, 16), ("host", 0), 0, 1)
    facts = told(
        data,
        (0.0, loads((0, 16), ("host", 0), 0)),
        (stop_s, StopLoad(0, "enough")),
        (stop_s, again),
        (stop_s, loads((4, 12), ("replica", 0), 1, 2)),
    )
    times = {fact.layers: at_s for at_s, fact in facts if isinstance(fact, Loaded) and fact.load == 2}
    assert times[4] == pytest.approx(stop_s + 4 * LAYER_BYTES / BETWEEN_GPUS, abs=1e-6), (
        "layers 4 to 8 leave at once"
    )
    whole_s = stop_s + (UNITS[0].size_bytes + 12 * LAYER_BYTES) / PCIE + LAYER_BYTES / BETWEEN_GPUS
    assert times[8] == pytest.approx(whole_s, abs=1e-6), "layer 11 leaves when it has come"


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        (
            loads((8, 16), ("host", 0), 0),
            r"load 0 is of layers \[8, 16\) of .*, and replica 0 is to hold layers \[0",
        ),
        (loads((8, 16), ("replica", 0), 1), r"and replica 0 is to hold layers \[0, 8\)"),
        (loads((24, 32), ("replica", 2), 1), r"replica 1 is to hold layers \[8, 16\)"),
        (loads((8, 16), ("replica", 2), 1), "replica 2 as a source, which has no parameters: load it first"),
    ],
)
def test_a_load_is_of_layers_that_its_ends_hold(action: Load, sentence: str) -> None:
    data = placed((0, 8), (8, 16), (0, L))
    refuses(AssertionError, sentence, data.carry_out, 0, action)


def test_a_source_that_has_a_part_of_a_load_is_refused() -> None:
    data = placed((0, L), (0, L))
    stop_s = (UNITS[0].size_bytes + 3.5 * LAYER_BYTES) / PCIE
    told(data, (0.0, loads((0, L), ("host", 0), 0)), (stop_s, StopLoad(0, "enough")))
    with pytest.raises(AssertionError, match=r"replica 0 as a source, which has not all layers \[0, 32\)"):
        data.carry_out(10**10, loads((0, L), ("replica", 0), 1, 1))


def test_a_replica_comes_back_for_the_same_part() -> None:
    data = placed((0, 8), warm=True)
    with pytest.raises(AssertionError, match=r"to hold layers \[0, 8\) of .* is placed for layers \[8, 16\)"):
        data.carry_out(0, place(0, 0, (8, 16)))


ranges = st.tuples(st.integers(0, L - 1), st.integers(1, L)).filter(lambda one: one[0] < one[1])
steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "came", "begin", "clear"]), st.sampled_from(["replica", "host"]), ranges
    ),
    max_size=12,
)


def units_of(first: int, last: int) -> list[str]:
    return [unit.name for unit in model_units(SHAPE, layers=range(first, last))]


@given(steps=steps, asked=ranges)
def test_the_book_of_residency_is_a_set_of_units(steps: list[tuple[str, str, Span]], asked: Span) -> None:
    book, sets = Residency({SHAPE.name: SHAPE}), {"replica": set[str](), "host": set[str]()}
    for what, kind, (first, last) in steps:
        stop, part, names = (kind, 3), Part(SHAPE.name, first, last), units_of(first, last)
        match what:
            case "put":
                book.put(stop, part)
                sets[kind] |= set(names)
            case "came":
                book.came(stop, SHAPE.name, UNITS[first])
                sets[kind].add(UNITS[first].name)
            case "begin":
                book.begin(stop, part)
                if kind == "host" or sets[kind] >= set(names):
                    sets[kind] -= set(names)
            case "clear":
                book.clear(stop)
                sets[kind].clear()
    for kind, there in sets.items():
        stop, part = (kind, 3), Part(SHAPE.name, *asked)
        assert book.has(stop, part) == (there >= set(units_of(*asked)))
        layers = [f"layer {layer}" in there for layer in range(*asked)]
        assert book.has_layers(stop, SHAPE.name, *asked) == all(layers)
        assert book.layers_there(stop, part) == [*layers, False].index(False)
        assert [book.has_unit(stop, SHAPE.name, unit) for unit in UNITS] == [
            one.name in there for one in UNITS
        ]


# What is run.


@given(cuts=st.sets(st.integers(1, L - 1), max_size=4), n=st.integers(1, 64), context=st.integers(0, 9999))
def test_the_parts_of_a_step_add_up_to_the_whole_step(cuts: set[int], n: int, context: int) -> None:
    rows = ToyRows(
        intercept=3 * NS + 5, per_sequence=NS // 7, slope=11, mixed_intercept=4 * NS, per_token=NS // 3
    )
    ends = [0, *sorted(cuts), L]
    parts = [PartSteps(rows, (first, last), L) for first, last in pairwise(ends)]
    ((_, intercept, slope),) = rows.decode(n)
    found = [piece for part in parts for piece in part.decode(n)]
    assert sum(piece[1] for piece in found) == intercept and sum(piece[2] for piece in found) == slope
    chunks = ((0, 0, n),)
    assert sum(part.mixed(n, context, chunks) for part in parts) == rows.mixed(n, context, chunks)


class Script:
    """A controller that answers each kind of event as written down."""

    elastic = step_counts = None

    def __init__(self, *placement: Action, answers: dict[type, list[list[Action]]]) -> None:
        self.placement, self.answers = placement, answers
        self.told: list[tuple[int, Event]] = []

    def handle(self, now_ns: int, event: Event) -> Sequence[Action]:
        self.told.append((now_ns, event))
        if type(event) is Opened:
            return self.placement
        left = self.answers.get(type(event), [])
        return left.pop(0) if left else []


def runs(replica: int, layers: Span | None = None, steps: int = 1) -> Run:
    return Run(replica, 0, CHUNKS, False, steps, True, "test", False, layers)


def world(script: Script, output: int = 1) -> Collected:
    seen, data = Collected(), plane(gpus_of=[])
    request = Request(0, 0, PROMPT, 8, SHAPE.name)
    # Type: ignore[arg-type]
    simulation = Simulation(
        script, [(request, output)], [], seen, journal=None, data_plane=data, rows_of={SHAPE.name: ROWS}
    )
    simulation.run()
    return seen


def test_a_run_of_layers_runs_where_they_are() -> None:
    arrives: list[Action] = [Assign(0, 1, "test"), runs(1, (8, 16))]
    script = Script(place(1, 1, (8, 16), True), answers={Arrived: [arrives], Ran: [[Reject(0, "test")]]})
    world(script)
    assert script.told[-1] == (ROWS.mixed_intercept // 4 >> 24, Ran(1, 0, 1, (), False, 0))


@pytest.mark.parametrize("warm", [True, False])
def test_a_run_of_layers_is_refused_where_they_are_not(warm: bool) -> None:
    script = Script(place(1, 1, (0, 8), warm), answers={Arrived: [[runs(1, (8, 16))]]})
    refuses(AssertionError, "replica 1 is to run layers 8 to 16, and h", world, script)


def test_a_replica_that_loads_a_part_runs_the_layers_that_are_there() -> None:
    """Layers 8 and 9 have come when the run begins, the third has not."""
    answers: dict[type, list[list[Action]]] = {
        Loaded: [[], [runs(1, (8, 10))]],
        Ran: [[runs(1, (10, 12))]],
    }
    script = Script(place(1, 1, (8, 16)), loads((8, 16), ("host", 0), 1), answers=answers)
    refuses(AssertionError, "replica 1 is to run layers 10 to 12, and has 8 to 10", world, script)
    assert type(script.told[-1][1]) is Ran


def test_a_prompt_goes_through_four_stages_and_gets_its_token_from_the_last() -> None:
    """Replicas of 8 layers each; activations in between. No stage runs more than a quarter of the pass."""
    stages = [place(n, n, (8 * n, 8 * n + 8), True) for n in range(4)]
    sends: list[list[Action]] = [
        [Send(n, "activations", (0,), n, n + 1, 10**6, "test", (8 * n + 8, 8 * n + 9))] for n in range(3)
    ]
    script = Script(
        *stages,
        answers={
            Arrived: [[Assign(0, 0, "test"), runs(0)]],
            Ran: sends,
            Sent: [[runs(n)] for n in (1, 2, 3)],
        },
    )
    seen = world(script)
    sent_ns = [at_ns for at_ns, event in script.told if isinstance(event, Sent)]
    ran_ns = [at_ns for at_ns, event in script.told if isinstance(event, Ran)]
    spans = [end - begin for begin, end in zip([0, *sent_ns], ran_ns)]
    assert sum(spans) == pytest.approx(ROWS.mixed_intercept >> 24, abs=4)
    assert max(spans) - min(spans) <= 1
    (replica, tokens, first_token_ns, _, _) = seen.done[0]
    assert (replica, tokens, first_token_ns) == (3, 1, ran_ns[-1])


def test_a_stage_without_the_last_layer_decodes_nothing() -> None:
    script = Script(place(1, 1, (0, 8), True), answers={Arrived: [[runs(1, None, 4)]]})
    with pytest.raises(
        AssertionError, match="replica 1 has layers 0 to 8 of 32: its prompts get no token here"
    ):
        world(script, output=4)


def test_the_last_stage_decodes_at_its_layers_share() -> None:
    script = Script(
        place(1, 1, (24, 32), True), answers={Arrived: [[Assign(0, 1, "test"), runs(1, None, 3)]]}
    )
    slow = replace(ROWS, intercept=400 * NS)
    seen, data = Collected(), plane(gpus_of=[])
    requests = [(Request(0, 0, PROMPT, 8, SHAPE.name), 3)]
    Simulation(script, requests, [], seen, journal=None, data_plane=data, rows_of={SHAPE.name: slow}).run()  # type: ignore[arg-type]
    assert seen.done[0][:2] == (1, 3) and [gap >> 24 for gap in seen.all_gaps] == [100, 100]


# What is sent.

KV_BYTES = SHAPE.kv_bytes_per_token // 4 * 100  # 8 of 32 layers, 100 positions


def sends(layers: Span | None, positions: tuple[Span, ...] = ((0, 100),), what: str = "kv") -> Send:
    return Send(0, what, (7,), 0, 1, KV_BYTES, "test", layers, positions)


def test_a_transfer_names_layers_and_positions() -> None:
    data = placed((8, 16), (0, 16), warm=True)
    facts = told(data, (0.0, sends((8, 16))))
    assert facts == [(pytest.approx(KV_BYTES / BETWEEN_GPUS, abs=1e-6), Sent(0, KV_BYTES, ""))]


@pytest.mark.parametrize(
    ("send", "sentence"),
    [
        (sends((0, 8)), r"is of layers 0 to 8, and replica 0 is to hold layers \[8, 16\)"),
        (sends((8, 24)), r"is of layers 8 to 24, and replica 0 is to hold layers \[8, 16\)"),
        (
            sends((8, 9), (), "activations"),
            r"is of layers 8 to 9, and replica 1 is to hold layers \[0, 8\)",
        ),
        (sends(None, ((0, 4), (0, 4))), "positions of 2 requests: write those of all 1"),
    ],
)
def test_a_transfer_is_of_layers_that_its_ends_hold(send: Send, sentence: str) -> None:
    data = placed((8, 16), (0, 8), warm=True)
    refuses(AssertionError, sentence, data.carry_out, 0, send)
