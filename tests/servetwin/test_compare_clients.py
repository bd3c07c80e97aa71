"""servetwin compare RUN RUN ... against RUN RUN ...: clients that measure alike, and one that is late."""

import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from servetwin.cli import main as cli
from servetwin.compare.clients import apart
from servetwin.compare.distance import distance
from tests.worlds.drawing import on_drawn_seeds

REQUESTS = 60
Captured = pytest.CaptureFixture[str]


def measured(folder: Path, name: str, drawn: np.random.Generator, late: float = 1.0, tokens: int = 9) -> Path:
    """One run: the same requests, each with noise of a tenth of its time; ``late``: a factor on TTFT."""
    length = np.arange(REQUESTS) % 13 + 1
    noise = drawn.normal(1, 0.1, REQUESTS)
    rows = [
        f"{one},{one * 0.1},{length[one] * 8},{tokens},{ttft},{ttft + 40}"
        for one, ttft in enumerate(10 * length * noise * late)
    ]
    path = folder / f"{name}.csv"
    path.write_text("\n".join(["request,arrival_s,prompt_tokens,output_tokens,ttft_ms,e2e_ms", *rows]) + "\n")
    return path


def runs(folder: Path, seed: int, late: float, count: int = 5) -> tuple[list[Path], list[Path]]:
    drawn = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True)
    return (
        [measured(folder, f"a{one}", drawn) for one in range(count)],
        [measured(folder, f"b{one}", drawn, late) for one in range(count)],
    )


def words(first: Sequence[Path], second: Sequence[Path]) -> list[str]:
    return ["compare", *map(str, first), "against", *map(str, second)]


@on_drawn_seeds([1, 2, 3])
def test_a_client_that_is_late_is_told_from_repeats(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    found = apart(*runs(tmp_path_factory.mktemp("late"), seed, 1.5))["ttft_ms"]
    assert (found.verdict, found.requests) == ("differ", REQUESTS) and found.ratio > 1.5
    assert found.chance == found.least_chance == 2 / 252, "no other way to divide them is as far apart"
    assert found.second["mean"] / found.first["mean"] == pytest.approx(1.5, rel=0.1)


def test_clients_that_measure_alike_are_seldom_told_apart(tmp_path: Path) -> None:
    """By the definition of chance in one of twenty pairs; here in at most seven of forty."""
    verdicts = [apart(*runs(tmp_path / str(seed), seed, 1.0))["ttft_ms"].verdict for seed in range(40)]
    assert set(verdicts) == {"differ", "no difference"} or set(verdicts) == {"no difference"}
    assert verdicts.count("differ") <= 7


def test_the_numbers_are_those_of_a_plain_count(tmp_path: Path) -> None:
    first, second = runs(tmp_path, 7, 1.1, 3)
    found = apart(first, second)["ttft_ms"]
    times = [np.loadtxt(path, delimiter=",", skiprows=1)[:, 4] for path in (*first, *second)]

    def ratio(group: tuple[int, ...]) -> float:
        pairs = list(combinations(range(6), 2))
        near = [distance(times[a], times[b]) for a, b in pairs if (a in group) == (b in group)]
        far = [distance(times[a], times[b]) for a, b in pairs if (a in group) != (b in group)]
        return float(np.mean(far) / np.mean(near))

    assert found.ratio == pytest.approx(ratio((0, 1, 2)))
    each = [ratio(group) for group in combinations(range(6), 3)]
    assert found.chance == pytest.approx(np.mean([one >= found.ratio - 1e-9 for one in each]))
    assert found.least_chance == 0.1


def test_the_command_says_it_and_ends_with_1_where_they_differ(tmp_path: Path, capsys: Captured) -> None:
    first, second = runs(tmp_path / "late", 1, 2.0)
    assert cli.run(words(first, second)) == 1
    told = capsys.readouterr().out
    assert "D_clients" in told and "differ" in told and "TTFT" in told and "TPOT" in told
    assert cli.run([*words(first, second), "json=true"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["timing"]["ttft_ms"]["verdict"] == "differ" and len(found["first"]) == 5
    first, second = runs(tmp_path / "alike", 1, 1.0)
    assert cli.run(words(first, second)) == 0
    assert cli.run(words(first[:2], second[:2])) == 0
    assert "no verdict: so few runs" in capsys.readouterr().out


def test_what_cannot_be_compared_is_refused(tmp_path: Path, capsys: Captured) -> None:
    first, second = runs(tmp_path, 1, 1.0)
    other = measured(tmp_path, "other", np.random.default_rng(0), tokens=10)
    failed = tmp_path / "failed.csv"
    head, *rows = first[0].read_text().splitlines()
    failed.write_text("\n".join([head, *rows[:-1], "59,5.9,56,9,,"]) + "\n")
    for given, told in (
        (words(first, second[:1]), "the second client has 1 of 2 to 10 runs"),
        (words([], second), "the first client has 0 of 2 to 10 runs"),
        (words(first, ["against", *second]), "against stands there twice"),
        (words(first, [*second, other]), "other.csv has requests of other lengths (output_tokens) than"),
        ([*words(first, second), "page=x.html"], "page= is not for runs of two clients: leave it out"),
        (words(first, [*second, failed]), "failed.csv: 1 requests failed"),
        (words(first, [*second, tmp_path / "none.csv"]), "none.csv cannot be read"),
    ):
        assert cli.run(given) == 2
        error = capsys.readouterr().err
        assert told in error and error.count("\n") == 1, error
