"""Clients that take turns at the requests of a run."""

from serving.vocabulary.closed_loop import ClosedLoop
from serving.vocabulary.request import Request

THINK_NS = 5


def loop(requests: int, clients: int, think_ns: int = THINK_NS) -> ClosedLoop:
    found = [(Request(number, 1000 * number, 8, 4, "m"), number + 1) for number in range(requests)]
    return ClosedLoop(found, [0] * clients, think_ns)


def taken(one: ClosedLoop) -> tuple[int, int, int] | None:
    """Request, arrival, true output."""
    found = one.take()
    return None if found is None else (found[0].id, found[0].arrival_ns, found[1])


def test_every_client_begins_at_once_and_sends_again_after_its_answer() -> None:
    clients = loop(4, 2)
    assert [taken(clients) for _ in range(3)] == [(0, 0, 1), (1, 0, 2), None]
    clients.in_flight(70, 2)
    assert taken(clients) is None
    clients.in_flight(100, 1)
    clients.in_flight(130, 0)
    assert [taken(clients) for _ in range(3)] == [(2, 105, 3), (3, 135, 4), None]


def test_two_that_end_at_once_let_two_be_sent() -> None:
    clients = loop(4, 2, think_ns=0)
    assert taken(clients) and taken(clients)
    clients.in_flight(40, 0)
    assert [taken(clients), taken(clients)] == [(2, 40, 3), (3, 40, 4)]


def test_no_request_is_left_when_all_were_sent() -> None:
    clients = loop(1, 3)
    assert taken(clients) == (0, 0, 1) and taken(clients) is None
    clients.in_flight(9, 0)
    assert taken(clients) is None


def test_a_client_that_is_through_sends_before_one_that_has_not_begun() -> None:
    """The first of three has its answer at 12, before the second begins, and sends again at 17."""
    found = [(Request(number, 0, 8, 4, "m"), number + 1) for number in range(4)]
    clients = ClosedLoop(found, [90, 0, 40], THINK_NS)
    assert taken(clients) == (0, 0, 1)
    pending = clients.take()
    assert pending is not None and (pending[0].id, pending[0].arrival_ns) == (1, 40)
    clients.in_flight(8, 2)
    assert not clients.is_sooner(pending)
    clients.in_flight(12, 1)
    assert clients.is_sooner(pending)
    assert [taken(clients) for _ in range(4)] == [(1, 17, 2), (2, 40, 3), (3, 90, 4), None]


def warmed(starts_ns: list[int], warmup: int, requests: int = 9) -> ClosedLoop:
    found = [(Request(number, 0, 8, 4, "m"), number + 1) for number in range(requests)]
    return ClosedLoop(found, starts_ns, THINK_NS, warmup=warmup)


def test_clients_begin_when_the_last_warm_up_request_has_ended() -> None:
    clients = warmed([0, 30], warmup=3)
    assert [taken(clients) for _ in range(3)] == [(0, 0, 1), (1, 0, 2), None]
    clients.in_flight(10, 1)
    assert [taken(clients), taken(clients)] == [(2, 15, 3), None]
    clients.in_flight(20, 1)
    assert taken(clients) is None, "a free client sends no counted request while warm-up goes on"
    clients.in_flight(50, 0)
    assert [taken(clients) for _ in range(3)] == [(3, 50, 4), (4, 80, 5), None]
    clients.in_flight(90, 0)
    assert [taken(clients), taken(clients)] == [(5, 95, 6), (6, 95, 7)]


def test_fewer_warm_up_requests_than_clients() -> None:
    clients = warmed([0, 0, 0], warmup=1)
    assert [taken(clients), taken(clients)] == [(0, 0, 1), None]
    clients.in_flight(7, 0)
    assert [taken(clients) for _ in range(4)] == [(1, 7, 2), (2, 7, 3), (3, 7, 4), None]
