"""The reader of invocations per minute: every minute keeps its count, bad files get one sentence."""

import csv
import gzip
import io
import re
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds.refusals import refuses
from traces import reading
from traces.errors import TraceError
from traces.importers import azure_functions
from traces.importers.azure_functions import (
    COLUMNS,
    MAX_PER_MINUTE,
    MINUTE_NS,
    NEVER,
    SPREAD,
    read_azure_functions_2019,
)
from traces.importers.requests import NO_LENGTHS
from traces.workload import Workload

HEADER = ",".join(COLUMNS)
OWNER, APP, OTHER_APP = "ab" * 32, "1234567890abcdef" * 4, "fedcba0987654321" * 4
F, G, H = "00112233" * 8, "aabbccdd" * 8, "99887766" * 8


def row(app: str, function: str, counts: dict[int, int], trigger: str = "http", owner: str = OWNER) -> str:
    """One line; ``counts`` is minute (1 to 1440) -> invocations."""
    return ",".join([owner, app, function, trigger, *(str(counts.get(m, 0)) for m in range(1, 1441))])


def written(folder: Path, *lines: str, name: str = "day.csv", ending: str = "\n") -> Path:
    path = folder / name
    data = "".join(line + ending for line in lines).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def refusal(path: Path, **options: int) -> str:
    return refuses(TraceError, re.escape(path.name) + ".*: ", read_azure_functions_2019, path, **options)


def by_minute(workload: Workload) -> Counter[tuple[str | None, int]]:
    """(model, minute from 1) -> requests."""
    assert workload.model is not None
    minutes = (workload.arrival_ns // MINUTE_NS + 1).tolist()
    return Counter(zip(workload.model.tolist(), minutes, strict=True))


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["day.csv", "day.csv.gz"])
def test_every_invocation_is_a_request_in_its_minute(tmp_path: Path, name: str, ending: str) -> None:
    path = written(
        tmp_path,
        HEADER,
        row(APP, F, {1: 3, 2: 1, 1440: 2}),
        row(APP, G, {}),
        row(OTHER_APP, F, {2: 4}, "timer"),
        name=name,
        ending=ending,
    )
    workload = read_azure_functions_2019(path)
    first, other = "12345678/00112233", "fedcba09/00112233"
    assert by_minute(workload) == {(first, 1): 3, (first, 2): 1, (first, 1440): 2, (other, 2): 4}
    assert workload.model is not None and workload.model.words == (first, other)
    assert workload.prompt_tokens.tolist() == workload.output_tokens.tolist() == [1] * 10
    assert workload.labels == (SPREAD, NO_LENGTHS, NEVER.format(1))
    assert NEVER.format(1) in workload.labels and not workload.dropped and workload.rows_read == 3
    assert workload.name == "day" and workload.source.startswith(f"{name} sha256=")


def test_the_labels_are_those_that_were_agreed() -> None:
    assert SPREAD == "invocations spread at random within their minute"
    assert NO_LENGTHS == "no lengths in the source: 1 prompt and 1 output token each"


def test_instants_are_uniform_within_their_minute_and_depend_on_the_seed(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, row(APP, F, {7: 20_000}))
    one, again, other = (read_azure_functions_2019(path, seed=seed).arrival_ns for seed in (1, 1, 2))
    assert one.tolist() == again.tolist() != other.tolist()
    inside = (one - 6 * MINUTE_NS) / MINUTE_NS
    assert inside.min() >= 0 and inside.max() < 1
    # Kolmogorov's distance of 20,000 uniform draws is below 0.0138 with 99.9 % probability.
    assert np.abs(inside - np.arange(20_000) / 20_000).max() < 0.0138


counts = st.dictionaries(st.integers(1, 1440), st.integers(0, 4), max_size=6)
days = st.dictionaries(
    st.tuples(
        st.sampled_from([APP, OTHER_APP]), st.sampled_from([F, G, H]), st.sampled_from(["http", "timer"])
    ),
    counts,
    min_size=1,
    max_size=8,
).filter(lambda day: any(sum(row.values()) for row in day.values()))
drawn = settings(max_examples=40)


def lines_of(day: dict[tuple[str, str, str], dict[int, int]]) -> list[str]:
    return [
        HEADER,
        *(row(app, function, counts, trigger) for (app, function, trigger), counts in day.items()),
    ]


@drawn
@given(day=days, block_bytes=st.sampled_from([7000, 9000, 2 << 20]))
def test_counts_come_back_as_they_were_written(
    tmp_path: Path, day: dict[tuple[str, str, str], dict[int, int]], block_bytes: int
) -> None:
    path = written(tmp_path, *lines_of(day))
    with patch.object(reading, "BLOCK_BYTES", block_bytes):
        workload = read_azure_functions_2019(path)
    expected: Counter[tuple[str, int]] = Counter()
    for (app, function, _), minutes in day.items():
        for minute, count in minutes.items():
            expected[f"{app[:8]}/{function[:8]}", minute] += count
    assert by_minute(workload) == +expected
    never = sum(not sum(minutes.values()) for minutes in day.values())
    assert (NEVER.format(never) in workload.labels) == (never > 0) and workload.rows_read == len(day)


@drawn
@given(day=days, limit=st.integers(1, 30), seed=st.integers(0, 3))
def test_a_limit_takes_the_first_arrivals_of_all(
    tmp_path: Path, day: dict[tuple[str, str, str], dict[int, int]], limit: int, seed: int
) -> None:
    path = written(tmp_path, *lines_of(day))
    whole = read_azure_functions_2019(path, seed=seed)
    part = read_azure_functions_2019(path, seed=seed, limit=limit)
    assert part.arrival_ns.tolist() == whole.arrival_ns[:limit].tolist()
    assert part.model is not None and whole.model is not None
    assert part.model.tolist() == whole.model.tolist()[:limit]
    cut = (f"first {limit} of {len(whole)} requests",) if limit < len(whole) else ()
    assert part.labels == (*cut, *whole.labels)


@drawn
@given(day=days, functions=st.integers(1, 7))
def test_the_most_invoked_functions_are_taken_whole(
    tmp_path: Path, day: dict[tuple[str, str, str], dict[int, int]], functions: int
) -> None:
    path = written(tmp_path, *lines_of(day))
    whole, part = read_azure_functions_2019(path), read_azure_functions_2019(path, functions=functions)
    assert whole.model is not None and part.model is not None
    all_of, kept = whole.model.counts(), part.model.counts()
    assert len(kept) == min(functions, len(all_of)) and kept.items() <= all_of.items()
    assert min(kept.values()) >= max((n for model, n in all_of.items() if model not in kept), default=0)
    pairs = by_minute(whole)
    assert by_minute(part) == {pair: n for pair, n in pairs.items() if pair[0] in kept}
    chosen = (f"the {functions} most invoked of {len(all_of)} functions",) if len(kept) < len(all_of) else ()
    assert part.labels == (*chosen, *whole.labels) and part.rows_read == len(day)


def test_of_equals_the_first_function_is_taken(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, row(APP, H, {1: 1}), row(APP, G, {1: 2}), row(APP, F, {9: 2}))
    model = read_azure_functions_2019(path, functions=1).model
    assert model is not None and model.words == ("12345678/aabbccdd",)
    equal = written(tmp_path, HEADER, *(row(APP, f"{i:08x}", {1: 1 + i % 2}) for i in range(80)))
    model = read_azure_functions_2019(equal, functions=60).model
    assert model is not None
    odd, even = list(range(1, 80, 2)), list(range(0, 40, 2))
    assert model.words == tuple(f"12345678/{i:08x}" for i in sorted(odd + even))


def test_functions_of_one_minute_are_mixed(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, row(APP, F, {3: 2000}), row(APP, G, {3: 2000}))
    model = read_azure_functions_2019(path).model
    assert model is not None
    # Of the first half of 4,000 in random order, 1,000 +- 16 are of one function.
    assert 900 < int((model.codes[:2000] == 0).sum()) < 1100


def test_functions_that_would_merge_get_longer_names(tmp_path: Path) -> None:
    near = F[:-1] + "e"
    path = written(tmp_path, HEADER, row(APP, F, {1: 1}), row(APP, near, {1: 1}), row(APP, G, {1: 1}))
    model = read_azure_functions_2019(path).model
    assert model is not None and len(set(model.tolist())) == 3
    assert model.words[0] != model.words[1] and model.words[2] == "12345678/aabbccdd"


def test_more_invocations_than_a_workload_holds_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, row(APP, F, {1: 60, 5: 1}), row(APP, G, {1: 20, 3: 19}))
    with patch.object(azure_functions, "MAX_ROWS", 70):
        sentence = refusal(path)
        assert (
            "100 invocations, and at most 70 can be read" in sentence
            and "write trace.functions=1 " in sentence
        )
        assert len(read_azure_functions_2019(path, functions=1)) == 61
        assert "trace.functions=1 " in refusal(path, limit=70), "its first minute has 80"
    with patch.object(azure_functions, "MAX_ROWS", 80):
        assert len(read_azure_functions_2019(path, limit=80)) == 80
    with patch.object(azure_functions, "MAX_ROWS", 50):
        assert "write trace.limit" in refusal(path)


def test_a_day_of_more_than_any_workload_is_read_in_part(tmp_path: Path) -> None:
    many = dict.fromkeys(range(3, 1441), MAX_PER_MINUTE)
    path = written(tmp_path, HEADER, row(APP, F, many), row(APP, G, {1: 5, 2: 9}))
    assert f"{MAX_PER_MINUTE * 1438 + 14} invocations" in refusal(path)
    assert by_minute(read_azure_functions_2019(path, limit=14)) == {
        ("12345678/aabbccdd", 1): 5,
        ("12345678/aabbccdd", 2): 9,
    }


GOOD = row(APP, F, {1: 1})
BAD_CELLS = [
    (0, "", "not a hash"),
    (1, "xyz", "not a hash"),
    (2, "f" * 129, "not a hash"),
    (2, '"ab"', "not a hash"),
    (3, "", "not a trigger"),
    (3, "7", "not a trigger"),
    (4, "", "value is missing"),
    (5, "NaN", "value is missing"),
    (700, "", "value is missing"),
    (1443, "", "value is missing"),
    (700, "-1", "negative"),
    (700, "1.0", "fraction"),
    (700, "1e3", "not a whole number"),
    (700, "+5", "not a whole number"),
    (700, " 5", "not a whole number"),
    (700, "1_0", "not a whole number"),
    (1443, "٣", "not a whole number"),
    (1443, "200000001", "more than 200000000"),
    (4, "9" * 400, "more than 200000000"),
    (4, "18446744073709551617", "more than 200000000"),
]


@pytest.mark.parametrize(("at", "cell", "problem"), BAD_CELLS)
def test_a_bad_cell_is_named_by_file_line_and_column(
    tmp_path: Path, at: int, cell: str, problem: str
) -> None:
    fields = row(APP, G, {}).split(",")
    fields[at] = cell
    sentence = refusal(written(tmp_path, HEADER, GOOD, ",".join(fields), row(APP, H, {4: 4})))
    assert f"day.csv, line 3, column {COLUMNS[at]}:" in sentence and problem in sentence
    assert "write" in sentence


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ([], ["is empty", "HashOwner,"]),
        ([""], ["line 1, column HashOwner", "write the header"]),
        ([HEADER], ["no functions"]),
        ([HEADER, "", ""], ["no functions"]),
        ([HEADER, row(APP, F, {})], ["no function is ever invoked"]),
        ([GOOD], ["line 1, column HashOwner"]),
        ([HEADER.removesuffix(",1440"), GOOD], ["line 1, column 1440: the column is missing"]),
        ([HEADER + ",1441", GOOD + ",0"], ["line 1: column '1441' is unknown"]),
        ([HEADER.replace("Trigger", "trigger"), GOOD], ["line 1, column Trigger: found 'trigger' instead"]),
        ([HEADER, GOOD + ",0"], ["line 2: 1445 fields are too many: write 1444"]),
        ([HEADER, GOOD.rpartition(",")[0]], ["line 2: 1443 fields are too few"]),
        ([HEADER, "", GOOD], ["line 2: the line is empty"]),
        ([HEADER, GOOD, "", row(APP, G, {})], ["line 3: the line is empty"]),
        (
            [HEADER, GOOD, GOOD],
            ["line 3, column HashFunction: function and trigger are those of line 2"],
        ),
    ],
)
def test_a_bad_whole_is_explained(tmp_path: Path, lines: list[str], parts: list[str]) -> None:
    path = written(tmp_path, *lines)
    for size in (2900, 2 << 20):
        with patch.object(reading, "BLOCK_BYTES", size):
            sentence = refusal(path)
        for part in parts:
            assert part in sentence


def test_the_first_wrong_line_is_named_whatever_is_wrong(tmp_path: Path) -> None:
    large, double, bad = row(APP, G, {8: MAX_PER_MINUTE + 1}), GOOD, row(APP, H, {}) + "x"
    for wrong in ([large, double, bad], [double, bad, large], [bad, large, double]):
        assert "line 3" in refusal(written(tmp_path, HEADER, GOOD, *wrong))


def test_wrong_options_and_paths_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, GOOD)
    for options in ({"limit": 0}, {"functions": 0}, {"functions": -1}, {"seed": -1}):
        with pytest.raises(TraceError, match=next(iter(options))):
            read_azure_functions_2019(path, **options)  # type: ignore[arg-type]
    assert "does not exist" in refusal(tmp_path / "absent.csv")
    assert len(read_azure_functions_2019(path, name="mine", functions=5, limit=9)) == 1


VALID = "\n".join([HEADER, GOOD, row(APP, G, {2: 2}, "timer"), row(OTHER_APP, F, {1440: 1})]).encode()
PIECES = [
    b",", b'"', b"\n", b"\r", b"\r\n", b"\0", b".", b"-", b"+", b" ", b"0", b"7", b"e", b"_", b"\xff", b"00",
    b"\xef\xbb\xbf", "\u0663".encode(), b",,", b"1,", b"99999999999",
]  # fmt: skip
# Most of the file is zeros: half of the edits go where the lines begin and end.
near_edges = st.builds(
    lambda edge, by: edge + by,
    st.sampled_from([0, *(i for i, byte in enumerate(VALID) if byte == 10), len(VALID)]),
    st.integers(-4, 215),
)
edits = st.lists(
    st.tuples(
        near_edges | st.integers(0, len(VALID)),
        st.integers(0, 3),
        st.sampled_from(PIECES) | st.binary(max_size=2),
    ),
    max_size=2,
)
line_edits = st.lists(
    st.tuples(st.sampled_from(["drop", "double", "swap"]), st.integers(0, 3), st.integers(0, 3)), max_size=1
)


def damaged(line_edits: list[tuple[str, int, int]], edits: list[tuple[int, int, bytes]]) -> bytes:
    lines = VALID.splitlines(keepends=True)
    for kind, i, j in line_edits:
        if kind == "drop":
            del lines[i]
        elif kind == "double":
            lines.insert(j, lines[i])
        else:
            lines[i], lines[j] = lines[j], lines[i]
    text = b"".join(lines)
    for at, removed, added in edits:
        i = max(0, min(at, len(text)))
        text = text[:i] + added + text[i + removed :]
    return text


@settings(max_examples=62)
@given(line_edits=line_edits, edits=edits, block_bytes=st.sampled_from([3000, 2 << 20]))
def test_damage_never_gives_a_wrong_count(
    tmp_path: Path,
    line_edits: list[tuple[str, int, int]],
    edits: list[tuple[int, int, bytes]],
    block_bytes: int,
) -> None:
    text = damaged(line_edits, edits)
    path = tmp_path / "day.csv"
    path.write_bytes(text)
    with patch.object(reading, "BLOCK_BYTES", block_bytes):
        try:
            workload = read_azure_functions_2019(path, limit=50)
        except TraceError as error:
            assert "day.csv" in str(error) and "\n" not in str(error)
            return
    rows = list(csv.reader(io.StringIO(text.decode("utf-8-sig"), newline=""), strict=True))
    while not rows[-1]:
        rows.pop()
    assert rows[0] == list(COLUMNS)
    totals: Counter[int] = Counter()
    invocations = 0
    for fields in rows[1:]:
        assert len(fields) == 1444
        totals.update({minute: int(count) for minute, count in enumerate(fields[4:], start=1)})
        invocations += sum(map(int, fields[4:]))
    assert len(workload) == min(50, invocations)
    if invocations <= 50:
        assert Counter((workload.arrival_ns // MINUTE_NS + 1).tolist()) == +totals
        never = sum(not sum(map(int, fields[4:])) for fields in rows[1:])
        assert (NEVER.format(never) in workload.labels) == (never > 0)
    assert workload.rows_read == len(rows) - 1
