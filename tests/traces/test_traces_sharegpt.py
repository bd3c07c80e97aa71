"""ShareGPT conversations: which become requests, how long they are, and that only a window is held."""

import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds.refusals import refuses
from traces.errors import TraceError
from traces.importers import sharegpt
from traces.importers.sharegpt import conversations, read_sharegpt
from traces.sharing import shared_prefixes

Turn = tuple[str, str]
PAIR: list[Turn] = [("human", "Hi there"), ("gpt", "Hello")]


def talk(turns: list[Turn], id: Any = "a") -> dict[str, Any]:
    return {"id": id, "conversations": [{"from": role, "value": text} for role, text in turns]}


def written(folder: Path, value: Any, name: str = "talks.json", **style: Any) -> Path:
    path = folder / name
    data = value if isinstance(value, bytes) else json.dumps(value, **style).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def refusal(path: Path, **options: Any) -> str:
    return refuses(TraceError, "", read_sharegpt, path, **({"rate_per_s": 2} | options))


@pytest.mark.parametrize("name", ["talks.json", "talks.json.gz"])
@pytest.mark.parametrize("indent", [None, 2])
def test_first_turns_are_requests(tmp_path: Path, name: str, indent: int | None) -> None:
    four: list[Turn] = [*PAIR, ("human", "And?"), ("gpt", "So.")]
    path = written(tmp_path, [talk(PAIR), talk(four, "b")], name, indent=indent)
    workload = read_sharegpt(path, rate_per_s=2)
    assert workload.prompt_tokens.tolist() == [2, 2]
    assert workload.output_tokens.tolist() == [2, 2]
    assert workload.session is None and workload.arrival_ns[0] == 0
    assert (workload.name, workload.rows_read, workload.dropped) == ("talks", 2, {})
    assert workload.labels == (
        "first human turn and its answer of each conversation",
        "lengths estimated at 4 characters per token",
        "no arrivals in the source: drawn at 2/s",
    )


def test_all_turns_carry_the_text_before_them(tmp_path: Path) -> None:
    turns: list[Turn] = [
        ("system", "1"),
        ("user", "22"),
        ("chatgpt", "333"),
        ("human", "4"),
        ("bing", "55"),
        ("human", "?"),
    ]
    path = written(tmp_path, [talk(turns, 5), talk(PAIR, "b"), talk(PAIR, "b"), talk(PAIR, "")])
    workload = read_sharegpt(path, rate_per_s=2, turns="all", count_tokens=len)
    assert workload.prompt_tokens.tolist() == [3, 7, 8, 8, 8]
    assert workload.output_tokens.tolist() == [3, 2, 5, 5, 5]
    assert workload.session is not None
    assert workload.session.tolist() == ["5", "5", "b", "b/2", "conversation 4"]
    assert list(shared_prefixes(workload)) == [(), ((0, 6),), (), (), ()]
    assert workload.labels == (
        "every answer of each conversation with all text before it as its prompt",
        "lengths counted by len",
        "no arrivals in the source: drawn at 2/s, turns of a conversation one after another",
    )
    first = read_sharegpt(path, rate_per_s=2, count_tokens=len)
    assert first.prompt_tokens.tolist() == [3, 8, 8, 8]


LEFT_OUT: list[tuple[list[Turn], str]] = [
    ([], "fewer than two turns"),
    ([("human", "Hi")], "fewer than two turns"),
    ([("gpt", "Hi"), ("human", "Hi")], "does not begin with a human turn"),
    ([("system", "x"), ("gpt", "Hi"), ("human", "Hi")], "does not begin with a human turn"),
    ([("tool", "x"), ("gpt", "Hi")], "does not begin with a human turn"),
    ([("human", "Hi"), ("gpt", "")], "a turn without text"),
    ([("human", " \n"), ("gpt", "x")], "a turn without text"),
    ([("human", "Hi"), ("tool", "x"), ("gpt", "x")], "a turn of neither human, gpt nor system"),
    ([("human", "Hi"), ("human", "x")], "no answer after the human turn"),
    ([("system", "Hi"), ("human", "x")], "no answer after the human turn"),
]


@pytest.mark.parametrize("turns", ["first", "all"])
@pytest.mark.parametrize(("talked", "reason"), LEFT_OUT)
def test_what_is_no_request_is_counted(tmp_path: Path, talked: list[Turn], reason: str, turns: Any) -> None:
    path = written(tmp_path, [talk(talked), talk(PAIR), talk(talked)])
    workload = read_sharegpt(path, rate_per_s=2, turns=turns)
    assert (len(workload), workload.dropped, workload.rows_read) == (1, {reason: 2}, 3)
    limited = read_sharegpt(path, rate_per_s=2, turns=turns, limit=2)
    assert (limited.dropped, limited.rows_read) == ({reason: 1}, 2)
    assert limited.labels[0] == "first 2 of 3 requests"
    assert "no conversation is a request" in refusal(written(tmp_path, [talk(talked)]), turns=turns)


def test_two_questions_before_an_answer_count_together_in_all_turns(tmp_path: Path) -> None:
    path = written(
        tmp_path, [talk([("human", "ab"), ("human", "c"), ("gpt", "d"), ("gpt", "e")]), talk(PAIR)]
    )
    workload = read_sharegpt(path, rate_per_s=2, turns="all", count_tokens=len)
    assert workload.prompt_tokens.tolist() == [3, 4, 8]
    assert read_sharegpt(path, rate_per_s=2).dropped == {"no answer after the human turn": 1}


def test_unused_turns_may_be_odd(tmp_path: Path) -> None:
    path = written(tmp_path, [talk([*PAIR, ("tool", "x"), ("human", "")])])
    assert len(read_sharegpt(path, rate_per_s=2)) == 1
    assert len(read_sharegpt(path, rate_per_s=2, turns="all")) == 1


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (b"", "conversation 1: the file ends too early: begin the file with ["),
        (b"  \n", "conversation 1: the file ends too early"),
        (b"[]", "has no conversations: write"),
        (b"[", "conversation 1: it is not JSON: expecting value"),
        (b"[1]", "conversation 1: 1 is not an object"),
        (b'{"id": 1}', "conversation 1: found '{' instead of [: begin the file with ["),
        (b"[\xff]", "is not UTF-8 text (invalid start byte)"),
        (b"[{}]", "conversation 1, key conversations: the list is missing: write the turns"),
        (b'[{"conversations": 5}]', "conversation 1, key conversations: 5 is not a list"),
        (b'[{"conversations": [5]}]', "key conversations, turn 1: 5 is not an object"),
        (b'[{"conversations": [{"from": "human"}]}]', "turn 1: value is null: write a text in quotes"),
        (b'[{"conversations": [{"from": 1, "value": ""}]}]', "turn 1: from is 1: write a text"),
        (b'[{"id": [], "conversations": []}]', "conversation 1, key id: a list is not a name"),
        (b'[{"id": 1, "id": 2}]', "conversation 1: the key 'id' occurs twice"),
        (b'[{"id": NaN}]', "conversation 1: NaN is not a JSON number"),
        (b'[{"id": 1e99999999999999999999}]', "is out of range"),
        (b'[{"id": ' + b"9" * 5000 + b"}]", "a number has too many digits"),
        (b"[" + b"[" * 100_000, "it is nested too deep"),
        (b'[{"id": ' + b'{"a":' * 100_000, "it is nested too deep"),
        (b'[{"id": "\x01"}]', "it is not JSON: invalid control character at"),
    ],
)
def test_refuses_in_one_sentence(tmp_path: Path, value: bytes, sentence: str) -> None:
    assert sentence in refusal(written(tmp_path, value))


@pytest.mark.parametrize(
    ("tail", "sentence"),
    [
        (b"", "conversation 1: the file ends too early: write , or ] after it"),
        (b",", "conversation 2: it is not JSON: expecting value"),
        (b",]", "conversation 2: it is not JSON: expecting value"),
        (b"}", "conversation 1: found '}' instead of ,"),
        (b"] 1", "conversation 1: more text follows the array"),
        (b"]]", "conversation 1: more text follows the array"),
        (b', {"id": "x', "conversation 2: it is not JSON: unterminated string starting at"),
    ],
)
def test_refuses_a_broken_end(tmp_path: Path, tail: bytes, sentence: str) -> None:
    assert sentence in refusal(written(tmp_path, b"[" + json.dumps(talk(PAIR)).encode() + tail))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rate_per_s": None}, "has no arrivals: write trace.rate_per_s="),
        ({"turns": "some"}, "trace.turns='some' is unknown: write first or all"),
        ({"count_tokens": lambda text: 1.5}, "conversation 1: count_tokens returned 1.5: return"),
        ({"count_tokens": lambda text: 10**8}, "conversation 1, key value: the text has more than 10000000"),
        ({"chars_per_token": "4"}, "chars_per_token='4' is not a number"),
        ({"limit": 0}, "trace.limit=0 is out of range"),
    ],
)
def test_refuses_wrong_options(tmp_path: Path, options: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(written(tmp_path, [talk(PAIR)]), **options)


def test_damaged_gzip_and_missing_files(tmp_path: Path) -> None:
    path = written(tmp_path, [talk(PAIR)], "talks.json.gz")
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert "is a truncated gzip file" in refusal(path)
    path.write_bytes(b"no gzip at all")
    assert "is not a valid gzip file" in refusal(path)
    path.write_bytes(whole[:12] + b"\xff\xff" + whole[14:])
    assert "is not a valid gzip file" in refusal(path)
    assert "does not exist" in refusal(tmp_path / "none.json")


def test_a_conversation_beyond_the_window_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, [talk(PAIR), talk([("human", "x" * 5000), ("gpt", "y")])])
    with patch.object(sharegpt, "_PIECE_BYTES", 64), patch.object(sharegpt, "WINDOW_CHARS", 1000):
        assert "conversation 2: the conversation has over 1000 characters: split or delete it" in refusal(
            path
        )


def test_only_a_window_is_held(tmp_path: Path) -> None:
    path = written(tmp_path, [talk(PAIR, str(n)) for n in range(2000)])
    longest = 0
    decoded = sharegpt.STRICT.raw_decode

    class Watched:
        def raw_decode(self, text: str, at: int) -> Any:
            nonlocal longest
            longest = max(longest, len(text))
            return decoded(text, at)

    with patch.object(sharegpt, "_PIECE_BYTES", 500), patch.object(sharegpt, "STRICT", Watched()):
        assert len(read_sharegpt(path, rate_per_s=2)) == 2000
    assert longest < 2000 < path.stat().st_size


texts = st.text(st.characters(codec="utf-8"), max_size=12)
talks = st.lists(
    st.builds(
        talk,
        st.lists(st.tuples(st.sampled_from(["human", "gpt", "system", "tool"]), texts), max_size=5),
        texts,
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("piece", [1, 7, 30])
def test_long_gaps_and_numbers_may_be_cut_anywhere(tmp_path: Path, piece: int) -> None:
    gap = " " * 40
    text = f'[{gap}{{{gap}"a"{gap}:{gap}[{gap}1{gap},{gap}-12.5e-10{gap},{gap}true{gap}]{gap},{gap}"b":{gap}'
    text += f"{'123456789' * 9}{gap}}}{gap},{gap}{{}}{gap}]{gap}"
    path = written(tmp_path, text.encode())
    with patch.object(sharegpt, "_PIECE_BYTES", piece):
        found = [value for _, value in conversations(path)]
    assert found == json.loads(text, parse_float=Decimal)


@given(
    value=talks,
    piece=st.integers(1, 40),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 1]),
    bom=st.booleans(),
)
@settings(max_examples=40)
def test_any_window_reads_the_same(
    value: list[Any], piece: int, ascii_only: bool, indent: int | None, bom: bool
) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    with TemporaryDirectory() as folder:
        path = written(Path(folder), b"\xef\xbb\xbf" + data if bom else data)
        with patch.object(sharegpt, "_PIECE_BYTES", piece):
            assert [found for _, found in conversations(path)] == value


def naive_requests(value: list[dict[str, Any]], every: bool) -> Iterator[tuple[int, int]]:
    """(prompt, output) characters by the plain rules; a conversation that is no request gives none."""
    for each in value:
        turns = [(turn["from"], turn["value"]) for turn in each["conversations"]]
        roles = [role for role, _ in turns]
        start = roles[1:] if roles[:1] == ["system"] else roles
        if len(turns) < 2 or start[:1] != ["human"]:
            continue
        answers = [at for at, role in enumerate(roles) if role == "gpt"]
        end = len(roles) - len(start) + 2
        used = turns[: answers[-1] + 1 if every and answers else end]
        if (
            used[-1][0] != "gpt"
            or len(used) < end
            or any(role == "tool" or not text.strip() for role, text in used)
        ):
            continue
        for at, (role, text) in enumerate(used):
            if role == "gpt":
                yield sum(len(before) for _, before in used[:at]), len(text)


@given(value=talks, every=st.booleans())
@settings(max_examples=40)
def test_requests_are_those_of_a_plain_reading(value: list[Any], every: bool) -> None:
    expected = list(naive_requests(value, every))
    with TemporaryDirectory() as folder:
        path = written(Path(folder), value)
        if not expected:
            assert "no conversation is a request" in refusal(path, turns="all" if every else "first")
            return
        workload = read_sharegpt(path, rate_per_s=2, turns="all" if every else "first", count_tokens=len)
    assert list(zip(workload.prompt_tokens.tolist(), workload.output_tokens.tolist())) == expected
    assert workload.rows_read == len(workload) + sum(workload.dropped.values())
