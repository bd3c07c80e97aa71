"""The driver's capability mask is complete: for every action of the vocabulary, who carries it out."""

from typing import get_args

from realexec.world.actions import CARRIES_OUT
from serving.vocabulary.actions import Action
from tests.worlds.told_workers import ToldWorld

# "_nothing": it changes only what the controller knows. A `Run` of a pass without KV (`inputs`) is refused.
HANDLERS = {
    "AllocateGpus": "_allocate",
    "Assign": "_assign",
    "Detach": "_detach",
    "Fail": "_fail",
    "Interrupt": "_interrupt",
    "JoinBatch": "_join",
    "Load": "_load",
    "Migrate": "_migrate",
    "Preempt": "_preempt",
    "Reject": "_reject",
    "ReleaseGpus": "_nothing",
    "Run": "_run",
    "Send": "_send",
    "StopLoad": "_stop_load",
    "StopSend": "_stop_send",
    "SwitchRole": "_nothing",
    "Wake": "_wake",
}


def test_every_action_has_a_handler() -> None:
    world = ToldWorld().world
    found = {kind.__name__: handler.__name__ for kind, handler in world._handlers.items()}
    assert found == HANDLERS
    # Time-outs of clients are refused in a real run: nobody aborts there.
    assert {kind.__name__ for kind in get_args(Action)} - {"Abort"} == set(HANDLERS)
    assert frozenset(world._handlers) == CARRIES_OUT
