"""Links as slow as is asked for, on a made-up clock: alone, shared by readers, in a chain."""

import json
from collections.abc import Sequence

import pytest

from realexec.memory.arena import Arena
from realexec.transports import shaped
from realexec.transports.base import PeerLost, Segment
from realexec.transports.shaped import Crossing, Passage, Paths, Shape
from realexec.transports.shared_memory import SharedMemoryTransport
from tests.worlds.arena_peers import fill, known_words, words_at
from tests.worlds.processes import started

MB = 1_000_000


class Clock:
    """Nothing but sleeping takes time."""

    now_ns = 1_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(shaped, "time", Clock())
    return shaped.time  # type: ignore[return-value]


class Counts:
    """A link that moves nothing."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def check(self, segments: Sequence[Segment]) -> None:
        pass

    def read(self, segments: Sequence[Segment]) -> None:
        self.sizes.append(sum(segment.size_bytes for segment in segments))

    def close(self) -> None:
        raise PeerLost("closed")


def segments_of(size_bytes: int, parts: int = 1) -> list[Segment]:
    part = size_bytes // parts
    return [Segment(number * part, number * part, part) for number in range(parts)]


@pytest.mark.parametrize("parts", [1, 5000])
@pytest.mark.parametrize(
    ("shapes", "names", "takes_s"),
    [
        ({"nic": Shape(50 * MB, 0.02)}, ["nic"], 0.02 + 5 / 50),
        ({"out": Shape(200 * MB, 0.01), "in": Shape(50 * MB, 0.02), "idle": Shape(1.0)}, ["out", "in"], 0.13),
    ],
)
def test_a_read_takes_all_latencies_and_bytes_over_the_slowest_rate(
    clock: Clock, shapes: dict[str, Shape], names: list[str], takes_s: float, parts: int
) -> None:
    link, began_ns = Paths.create(shapes).link(Counts(), names), clock.now_ns
    link.read(segments_of(5 * MB, parts))
    assert (clock.now_ns - began_ns) / 1e9 == pytest.approx(takes_s, abs=1e-5)


def test_a_path_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="no path 'nowhere', only idle, nic"):
        Paths.create({"nic": Shape(1.0), "idle": Shape(1.0)}).passage(["idle", "nowhere"])


def test_a_read_that_was_late_catches_up_within_it(clock: Clock) -> None:
    """A sleep that is late by a whole turn, once: the read ends when it would have."""
    crossing, began_ns = Paths.create({"nic": Shape(MB)}).passage(["nic"]).begin(), clock.now_ns
    for turn in range(10):
        crossing.carry(5000)
        clock.now_ns += 5_000_000 if turn == 3 else 0
    assert clock.now_ns - began_ns == 50_000_000


def read_in_turns(clock: Clock, readers: dict[str, tuple[Passage, int]]) -> dict[str, float]:
    """Each reader books a chunk when its last one has passed; when each has its bytes, in s."""
    began_ns = clock.now_ns
    crossings: dict[str, Crossing] = {name: passage.begin() for name, (passage, _) in readers.items()}
    left = {name: size for name, (_, size) in readers.items()}
    due_ns = dict.fromkeys(readers, began_ns)
    while any(left.values()):
        name = min((name for name in left if left[name]), key=due_ns.__getitem__)
        clock.now_ns = max(clock.now_ns, due_ns[name])
        chunk = min(readers[name][0].chunk_bytes, left[name])
        due_ns[name] = crossings[name].book(chunk)
        left[name] -= chunk
    return {name: (at_ns - began_ns) / 1e9 for name, at_ns in due_ns.items()}


def test_reads_that_name_one_path_share_its_rate_evenly(clock: Clock) -> None:
    """While two share it each has half; the longer one has all of it afterwards."""
    paths = Paths.create({"nic": Shape(60 * MB), "other": Shape(60 * MB)})
    nic, other = paths.passage(["nic"]), paths.passage(["other"])
    ended = read_in_turns(clock, {"a": (nic, 3 * MB), "b": (nic, 6 * MB), "c": (other, 6 * MB)})
    assert ended["a"] == pytest.approx(6 / 60, abs=1.01 * nic.chunk_bytes / (60 * MB))
    assert ended["b"] == pytest.approx(9 / 60, abs=1e-5) and ended["c"] == pytest.approx(6 / 60, abs=1e-5)


def test_processes_share_a_path() -> None:
    paths = Paths.create({"nic": Shape(40 * MB)})
    code = (
        "import json, sys; from realexec.transports.shaped import Paths\n"
        "paths = Paths.attach(json.loads(sys.argv[1]))\n"
        "print([paths.book('nic', 7, 10) for _ in range(3)][-1])"
    )
    assert paths.book("nic", 0, 100) == 100
    with started(code, json.dumps(paths.handle)) as other:
        assert int(other.communicate()[0]) == 130
    assert paths.book("nic", 0, 5) == 135 and paths.book("nic", 1000, 5) == 1005


def test_a_link_that_closes_badly_says_so() -> None:
    with pytest.raises(PeerLost):
        Paths.create({}).link(Counts(), []).close()


LAYERS, LAYER_BYTES = 20, 6240
RATE, LATENCY_S = 0.16 * MB, 0.001
LAYER_NS = round((LATENCY_S + LAYER_BYTES / RATE) * 1e9)


@pytest.mark.parametrize("targets", [1, 2, 4])
def test_a_chain_takes_as_long_as_one_link_and_a_layer_per_further_link(clock: Clock, targets: int) -> None:
    """Each target passes a layer on once it is whole, and what arrives is what was sent."""
    arenas = [Arena.create(LAYERS * LAYER_BYTES) for _ in range(targets + 1)]
    fill(arenas[0])
    paths = Paths.create({f"to {target}": Shape(RATE, LATENCY_S) for target in range(1, targets + 1)})
    transports = [SharedMemoryTransport(arena) for arena in arenas]
    began_ns = clock.now_ns
    whole_ns = [began_ns] * LAYERS
    for target in range(1, targets + 1):
        link = paths.link(transports[target].connect(transports[target - 1].address()), [f"to {target}"])
        clock.now_ns = began_ns
        for layer in range(LAYERS):
            clock.now_ns = max(clock.now_ns, whole_ns[layer])
            link.read([Segment(layer * LAYER_BYTES, layer * LAYER_BYTES, LAYER_BYTES)])
            whole_ns[layer] = clock.now_ns
    assert whole_ns[-1] - began_ns == pytest.approx(LAYER_NS * (LAYERS + targets - 1), rel=1e-6)
    assert (words_at(arenas[-1], 0, LAYERS * LAYER_BYTES) == known_words(0, LAYERS * LAYER_BYTES)).all()
