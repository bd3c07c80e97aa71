"""What every transport promises, asked of each of them: bytes that are right, or a fault that is told."""

import os
import signal
import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from realexec.memory.arena import Arena
from realexec.transport_registry import missing
from realexec.transports import tcp
from realexec.transports.base import BadSegment, Link, PeerLost, Segment
from realexec.transports.shaped import Paths, Shape
from realexec.transports.tcp import TcpTransport
from realexec.wire.channel import Channel
from tests.worlds.arena_peers import Peer, known_words, serving, transport_of, words_at
from tests.worlds.processes import patience_s
from tests.worlds.transports_here import transports

MB = 1 << 20
SIZE = 8 * MB
SHAPED = "shaped "
KINDS = [*transports(), *transports(prefix=SHAPED)]


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def peer(kind: str) -> Iterator[Peer]:
    with serving(kind.removeprefix(SHAPED), SIZE) as peer:
        yield peer


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena.create(SIZE) as arena:
        yield arena


def connected(kind: str, arena: Arena, address: dict[str, object]) -> Link:
    link = transport_of(kind.removeprefix(SHAPED), arena).connect(address)
    if not kind.startswith(SHAPED):
        return link
    return Paths.create({"wire": Shape(100e9)}).link(link, ["wire"])


def holds(arena: Arena, segment: Segment) -> bool:
    remote, local, size = segment
    return np.array_equal(words_at(arena, local, size), known_words(remote, size))


def test_bytes_come_to_their_places_and_nothing_else_changes(kind: str, peer: Peer, arena: Arena) -> None:
    link = connected(kind, arena, peer.address)
    sizes = [8, 64, 8, 100_000, 4096, 2 * MB, 8, 16]
    segments, local = [], 1024
    for number, size in enumerate(sizes):
        segments.append(Segment((number * 999_424) % (SIZE - size) // 8 * 8, local, size))
        local += size + 1024
    link.read(segments)
    assert all(holds(arena, segment) for segment in segments)
    for _, begin, size in segments:
        arena.buffer[begin : begin + size] = bytes(size)
    assert not np.frombuffer(arena.buffer, dtype=np.uint8).any()
    link.close()


def test_ten_thousand_small_segments_in_one_read(kind: str, peer: Peer, arena: Arena) -> None:
    link = connected(kind, arena, peer.address)
    link.read([Segment(SIZE - 8 * (number + 1), 8 * number, 8) for number in range(10_000)])
    assert np.array_equal(words_at(arena, 0, 80_000), known_words(SIZE - 80_000, 80_000)[::-1])
    link.read([])
    link.close()


@pytest.mark.parametrize(
    "segment",
    [(SIZE - 8, 0, 16), (SIZE, 0, 8), (-8, 0, 8), (0, SIZE - 8, 16), (0, -8, 8), (0, 0, 0), (1 << 62, 0, 8)],
)
def test_a_segment_outside_an_arena_is_refused_and_the_link_goes_on(
    kind: str, peer: Peer, arena: Arena, segment: tuple[int, int, int]
) -> None:
    link = connected(kind, arena, peer.address)
    with pytest.raises(BadSegment):
        link.read([Segment(0, 0, 64), Segment(*segment)])
    assert not any(arena.buffer[:64]), "nothing of it was read"
    link.read([Segment(64, 0, 64)])
    assert holds(arena, Segment(64, 0, 64))
    link.close()


def test_reads_of_several_threads_over_one_link_and_over_several(kind: str, peer: Peer, arena: Arena) -> None:
    one = connected(kind, arena, peer.address)
    links = [one, one, one, connected(kind, arena, peer.address)]
    part = SIZE // len(links)
    wrong: list[object] = []

    def read(number: int, link: Link) -> None:
        try:
            for offset in range(0, part, part // 16):
                remote = (offset + number * part * 3) % SIZE
                segment = Segment(remote, number * part + offset, part // 16)
                link.read([segment])
                if not holds(arena, segment):
                    wrong.append(segment)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=read, args=pair, daemon=True) for pair in enumerate(links)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience_s())
    assert wrong == [] and not any(thread.is_alive() for thread in threads)


def read_until_it_fails(link: Link) -> tuple[threading.Thread, threading.Event, list[BaseException]]:
    """A thread that reads all there is, again and again."""
    failure: list[BaseException] = []
    reading = threading.Event()

    def read() -> None:
        try:
            while True:
                link.read([Segment(0, 0, SIZE)])
                reading.set()
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert reading.wait(patience_s())
    return thread, reading, failure


@pytest.mark.parametrize("end", ["killed", "closed", "link closed"])
def test_who_reads_while_the_peer_goes_is_told(kind: str, arena: Arena, end: str) -> None:
    with serving(kind.removeprefix(SHAPED), SIZE) as peer:
        link = connected(kind, arena, peer.address)
        thread, _, failure = read_until_it_fails(link)
        if end == "killed":
            os.kill(peer.process.pid, signal.SIGKILL)
        elif end == "closed":
            peer.close_transport()
        else:
            link.close()
        thread.join(patience_s())
        assert not thread.is_alive() and isinstance(failure[0], PeerLost), failure
        assert str(failure[0])
        with pytest.raises(PeerLost):
            link.read([Segment(0, 0, 8)])
        if end == "link closed":  # and connect again
            again = connected(kind, arena, peer.address)
            again.read([Segment(8, 0, 8)])
            assert holds(arena, Segment(8, 0, 8))
        else:
            with pytest.raises(PeerLost):
                connected(kind, arena, peer.address).read([Segment(0, 0, 8)])
        link.close()
        link.close()


def test_a_peer_that_comes_back_is_connected_to_at_its_new_address(kind: str, arena: Arena) -> None:
    for _ in range(2):
        with serving(kind.removeprefix(SHAPED), MB) as peer:
            link = connected(kind, arena, peer.address)
            link.read([Segment(0, MB, MB)])
            assert holds(arena, Segment(0, MB, MB))
            os.kill(peer.process.pid, signal.SIGKILL)
            peer.process.wait()
            with pytest.raises(PeerLost):
                link.read([Segment(0, 0, MB)])


def test_a_transport_that_is_closed_ends_its_links(kind: str, peer: Peer, arena: Arena) -> None:
    transport = transport_of(kind.removeprefix(SHAPED), arena)
    link = transport.connect(peer.address)
    link.read([Segment(0, 0, 8)])
    transport.close()
    with pytest.raises(PeerLost):
        link.read([Segment(0, 0, 8)])


@pytest.mark.parametrize("kind", transports())
def test_256_megabytes_are_as_they_were(kind: str) -> None:
    whole = 256 * MB
    with serving(kind, whole) as peer, Arena.create(whole) as arena:
        transport_of(kind, arena).connect(peer.address).read([Segment(0, 0, whole)])
        for offset in range(0, whole, 16 * MB):
            assert holds(arena, Segment(offset, offset, 16 * MB))


@pytest.mark.parametrize("kind", transports())
def test_this_machine_has_them(kind: str) -> None:
    assert missing()[kind] is None


def test_a_tcp_peer_looks_for_itself_whether_a_segment_is_within(arena: Arena) -> None:
    with serving("tcp", MB) as peer:
        link = connected("tcp", arena, {**peer.address, "size_bytes": SIZE})
        with pytest.raises(BadSegment, match="outside the peer's arena of 1048576 bytes"):
            link.read([Segment(0, 0, 8), Segment(MB - 8, 0, 16)])
        link.read([Segment(MB - 8, 0, 8)])
        assert holds(arena, Segment(MB - 8, 0, 8))


def test_a_tcp_peer_serves_only_who_was_given_its_address(arena: Arena) -> None:
    with serving("tcp", MB) as peer:
        with pytest.raises(PeerLost, match="does not know the secret"):
            connected("tcp", arena, {**peer.address, "secret": "00" * 32})
        at = peer.address["at"]
        with socket.create_connection((at["host"], at["port"])) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(100))
            assert not stranger.recv(1 << 16), "hung up on"
        connected("tcp", arena, peer.address).read([Segment(0, 0, MB)])
        assert holds(arena, Segment(0, 0, MB))


def test_kv_passes_parameters_that_are_on_their_way_over_tcp(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit is held in the middle of its read; what other threads read comes, over one more connection."""
    begun, go_on = threading.Event(), threading.Event()
    receive, connect, entered = Channel.receive_into, tcp.connect, []

    def held(channel: Channel, views: list[memoryview]) -> None:
        if sum(map(len, views)) >= MB:
            begun.set()
            assert go_on.wait(patience_s())
        receive(channel, views)

    monkeypatch.setattr(Channel, "receive_into", held)
    monkeypatch.setattr(tcp, "connect", lambda *how: entered.append(how) or connect(*how))
    order: list[str] = []
    unit, pages = Segment(0, 0, 2 * MB), [Segment(4 * MB + 4096 * page, 4 * MB, 4096) for page in range(3)]
    with serving("tcp", SIZE) as peer:
        link = connected("tcp", arena, peer.address)

        def read(name: str, segment: Segment) -> None:
            link.read([segment])
            assert holds(arena, segment)
            order.append(name)

        parameters = threading.Thread(target=read, args=("parameters", unit), daemon=True)
        parameters.start()
        assert begun.wait(patience_s())
        for page in pages:
            read("kv", page)
        go_on.set()
        parameters.join(patience_s())
    assert order == ["kv", "kv", "kv", "parameters"] and len(entered) == 2


def test_a_tcp_peer_that_has_stopped_is_lost_after_a_silence(arena: Arena) -> None:
    with serving("tcp", MB) as peer:
        transport = TcpTransport(arena, silence_s=1.0)
        link = transport.connect(peer.address)
        link.read([Segment(0, 0, MB)])
        os.kill(peer.process.pid, signal.SIGSTOP)
        with pytest.raises(PeerLost, match="took too long"):
            while True:  # its threads do not stop at once
                link.read([Segment(0, 0, MB)])
        os.kill(peer.process.pid, signal.SIGCONT)
        with pytest.raises(PeerLost):
            link.read([Segment(0, 0, MB)])
        again = transport.connect(peer.address)
        again.read([Segment(0, 0, MB)])
        assert holds(arena, Segment(0, 0, MB))
        transport.close()
