"""A user's folder with a policy of their own in it, for the tests of policies from outside the package."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from servetwin.cli import main as cli

TINY = ("trace=azure_conv_like", "trace.requests=20", "trace.rate_per_s=20", "cluster=a100_x2")

DISPATCH = """
from random import Random
from typing import Literal

from serving.engine.fleet import FleetView
from serving.vocabulary.request import Request


class FillFirst:
    def __init__(self, most: int, random: Random, slack: float = 1, names: list[str] = ["a"],
                 last: bool = False, why: str = "room", limit: int | None = None,
                 weights: "tuple[float, ...]" = (1,), how: Literal["far", "near"] | None = None):
        if most < 1:
            raise ValueError("fill first needs most of at least 1")
        assert isinstance(random, Random)
        self.most, self.why = most, f"{why} {slack} {names} {last} {limit} {weights}"

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        for position in range(fleet.replicas):
            replica = fleet.replica_at(position)
            if fleet.load(replica, "outstanding") < self.most:
                return replica, self.why
        return fleet.least("outstanding")[0], "every replica is full"


class NoMethod:
    pass


class OtherArguments:
    def dispatch(self, request):
        return 0, "first"


class Breaks(FillFirst):
    def __init__(self):
        raise KeyError("of the constructor")


class Leaves(FillFirst):
    def __init__(self):
        raise SystemExit(0)


class Odd(FillFirst):
    def __init__(self, how: dict[str, int]):
        pass


def fill_first(most: int):
    return FillFirst(most)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder; what is imported from it is forgotten again."""
    before, path = set(sys.modules), list(sys.path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def mine(here: Path) -> Path:
    (here / "my_policies.py").write_text(DISPATCH)
    return here


def sentence(words: list[str], capsys: pytest.CaptureFixture[str], run: Callable[..., int] = cli.run) -> str:
    capsys.readouterr()
    assert run(words) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "Traceback" not in said.err
    return said.err
