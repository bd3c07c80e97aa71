"""vLLM's front end before data-parallel engines: waiting x 4 + running, of counts up to 100 ms old."""

from dataclasses import dataclass, field

import pytest

from policies.dispatch import WaitingRunning
from serving.engine.fleet import Signal
from serving.vocabulary.request import Request


@dataclass
class Ranks:
    """A fleet: of each rank requests outstanding and running."""

    outstanding: list[int]
    active: list[int]
    looks: list[int] = field(default_factory=list)

    @property
    def replicas(self) -> int:
        return len(self.outstanding)

    def replica_at(self, position: int) -> int:
        return position

    def load(self, replica: int, signal: Signal) -> int:
        assert signal == "outstanding"
        return self.outstanding[replica]

    def running(self, replica: int) -> int:
        self.looks.append(replica)
        return self.active[replica]


def chosen(policy: WaitingRunning, ranks: Ranks, at_ms: int) -> tuple[int, str]:
    return policy.dispatch(Request(0, at_ms * 1_000_000, 8, 8, "m"), ranks)  # type: ignore[arg-type]


def test_a_waiting_request_counts_as_four_running_ones() -> None:
    assert chosen(WaitingRunning(), Ranks([4, 2], [4, 1]), 0) == (0, "0 waiting, 4 running")
    assert chosen(WaitingRunning(), Ranks([6, 2], [6, 1]), 0) == (1, "1 waiting, 1 running")


def test_between_two_looks_it_counts_what_it_sends_as_waiting() -> None:
    policy, ranks = WaitingRunning(), Ranks([0, 0, 0], [0, 0, 0])
    assert [chosen(policy, ranks, at_ms)[0] for at_ms in (0, 1, 2, 99)] == [0, 1, 2, 0]
    assert ranks.looks == [0, 1, 2]
    ranks.outstanding, ranks.active = [2, 1, 0], [2, 1, 0]
    assert chosen(policy, ranks, 100) == (2, "0 waiting, 0 running")


def test_a_rank_that_is_gone_is_looked_past_at_once() -> None:
    policy = WaitingRunning()
    assert chosen(policy, Ranks([0, 0, 0], [0, 0, 0]), 0)[0] == 0
    assert chosen(policy, Ranks([9, 0], [9, 0]), 1)[0] == 1


def test_counts_of_a_negative_age_are_refused() -> None:
    with pytest.raises(ValueError, match="counts_age_ms"):
        WaitingRunning(-1.0)
