"""A policy's fault is told as the policy's: class, method, event, what it did and what it must return."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.admission import AdmitAll
from policies.batching import ChunkedPrefill
from policies.dispatch import LeastOutstanding
from servetwin.assemble import build
from servetwin.cli.main import run
from servetwin.config.compose.compose import load_config
from servetwin.run.simulate import Prepared, execute, prepare
from serving.protocols.batch import Batch
from serving.vocabulary.errors import PolicyError
from tests.worlds.faulty_policies import answering, raising, sentence

STATIC = [
    "trace=azure_conv_like",
    "trace.requests=12",
    "trace.tokens_scale=0.2",
    "cluster=a100_x2",
    "system=vllm",
]


@pytest.fixture(autouse=True)
def strange(monkeypatch: pytest.MonkeyPatch) -> None:
    """The policies that are spoilt below are checked as those of a user are."""
    monkeypatch.setattr(build, "_is_ours", lambda policy: False)


@pytest.fixture(scope="module")
def static() -> Prepared:
    return prepare(load_config([*STATIC, "out=unused"], "simulate"))


def changed(change: Callable[[Batch], object]) -> Callable[..., object]:
    """A batcher whose first batch is spoilt."""
    real = ChunkedPrefill.choose
    return lambda self, view: None if (batch := real(self, view)) is None else change(batch)


def first_chunk(request: object = 0, start: object = 0, tokens: object = None) -> Callable[..., object]:
    def change(batch: Batch) -> object:
        known = batch.chunks[0][2] if tokens is None else tokens
        return batch._replace(chunks=((request, start, known),))  # type: ignore[arg-type]

    return changed(change)


DISPATCH = [
    (answering(None), "returned None, but the answer is not a tuple (replica, reason)"),
    (answering([0, "x"]), "the answer is not a tuple (replica, reason)"),
    (answering((0,)), "the answer is not a tuple (replica, reason)"),
    (answering((99, "x")), "replica 99 accepts no requests of llama3_8b now"),
    (answering((-1, "x")), "replica -1 accepts no requests"),
    (answering((True, "x")), "a replica id must be an int, not a bool"),
    (answering((0.0, "x")), "a replica id must be an int, not a float"),
    (answering((np.int64(0), "x")), "a replica id must be an int, not a int64"),
    (answering((0, "")), "the reason is empty"),
    (answering((0, None)), "the reason must be a str, not a NoneType"),
    (answering((0, np.zeros(2))), "the reason must be a str, not a ndarray"),
    (raising(ValueError("two\nlines")), "raised ValueError: two lines (faulty_policies.py line "),
    (raising(SystemExit(0)), "raised SystemExit: 0"),
    (raising(RecursionError()), "raised RecursionError"),
]
ADMIT = [
    (answering(""), "returned '', but the reason is empty"),
    (answering(False), "returned False, but the reason must be a str, not a bool"),
    (answering(b"no"), "the reason must be a str, not a bytes"),
    (raising(SystemExit("done")), "raised SystemExit: done"),
]
CHOOSE = [
    (answering("run"), "returned 'run', but the answer is a str"),
    (
        answering(None),
        "returned None although 0 requests run and 1 wait on replica 0",
    ),
    (changed(tuple), "but the answer is a tuple"),
    (changed(lambda one: one._replace(decode=1)), "decode is of type bool, not int"),
    (changed(lambda one: one._replace(interruptible=None)), "interruptible is of type bool, not NoneType"),
    (changed(lambda one: one._replace(max_steps=0)), "max_steps is 0"),
    (changed(lambda one: one._replace(max_steps=True)), "max_steps is of type int, not bool"),
    (changed(lambda one: one._replace(max_steps=2.0)), "max_steps is of type int, not float"),
    (
        changed(lambda one: one._replace(max_steps=10**9)),
        "more KV blocks than are free for 1000000000 steps",
    ),
    (changed(lambda one: one._replace(reason="")), "the reason is empty"),
    (changed(lambda one: one._replace(chunks=list(one.chunks))), "chunks is of type tuple, not list"),
    (changed(lambda one: one._replace(chunks=(3,))), "the chunk 3 is not (request, first position, tokens)"),
    (changed(lambda one: one._replace(admit=2)), "admit is 2, outside 0 to 1"),
    (changed(lambda one: one._replace(admit=-1)), "admit is -1, outside 0 to 1"),
    (changed(lambda one: one._replace(admit=True)), "admit is of type int, not bool"),
    (
        changed(lambda one: one._replace(admit=0)),
        "names a request that neither waits nor has an unfinished prompt",
    ),
    (changed(lambda one: one._replace(chunks=(), admit=0)), "nor decoding requests in its first step"),
    (changed(lambda one: one._replace(chunks=one.chunks * 2, admit=2)), "names a request that neither waits"),
    (
        changed(lambda one: one._replace(preempt=(7,))),
        "preempt names request 7, which is not running or is named twice",
    ),
    (changed(lambda one: one._replace(preempt=[7])), "preempt is not a tuple of request ids"),
    (first_chunk(request=5), "request 0 is before 5 in the queue"),
    (first_chunk(request=False), "is not (request, first position, tokens), a tuple of three ints"),
    (first_chunk(start=16), "request 0 continues at position 0"),
    (first_chunk(start=np.int64(0)), "a tuple of three ints"),
    (first_chunk(tokens=0), "does not fit: request 0 continues at position 0"),
    (
        first_chunk(tokens=10**6),
        "does not fit: request 0 continues at position 0 or after its stored blocks, once, with 1 ",
    ),
    (first_chunk(tokens=1), "with all of them if max_steps is above 1"),
    (raising(KeyError(3)), "raised KeyError: 3"),
]
CASES = [
    *[(LeastOutstanding, "dispatch", *case) for case in DISPATCH],
    *[(AdmitAll, "admit", *case) for case in ADMIT],
    *[(ChunkedPrefill, "choose", *case) for case in CHOOSE],
]


@pytest.mark.parametrize(("policy", "method", "fault", "words"), CASES)
def test_a_fault_names_policy_method_event_and_what_must_be_returned(
    static: Prepared, monkeypatch: pytest.MonkeyPatch, policy: type, method: str, fault: Any, words: str
) -> None:
    monkeypatch.setattr(policy, method, fault)
    with pytest.raises(PolicyError) as told:
        execute(static)
    text = str(told.value)
    assert text.startswith(f"{sentence(policy, method)}Arrived (request 0) at 0."), text
    assert words in text and "; it must return " in text and "\n" not in text, text


def test_ctrl_c_inside_a_policy_is_the_users(static: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeastOutstanding, "dispatch", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        execute(static)


def test_an_answer_with_a_faulty_text_is_told(static: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError("no text")

    for answer in (Odd(), [0] * 10**6, "x" * 10**6):
        monkeypatch.setattr(LeastOutstanding, "dispatch", answering(answer))
        with pytest.raises(PolicyError, match=r"the answer is not a tuple \(replica, reason\)") as told:
            execute(static)
        assert len(str(told.value)) < 1000


def test_two_chunks_of_one_prompt_under_way(static: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first chunk leaves a token; the second batch has two that go on with it."""
    real = ChunkedPrefill.choose

    def spoilt(self: ChunkedPrefill, view: Any) -> object:
        if view.prefilling:
            (progress,) = view.prefilling.values()
            chunk = (progress.id, progress.computed, 1)
            return Batch((), (chunk, chunk), 0, True, 1, False, "twice")
        batch = real(self, view)
        if batch is None or not batch.chunks:
            return batch
        (request, start, tokens), *_ = batch.chunks
        return batch._replace(
            chunks=((request, start, tokens - 1),), admit=1, max_steps=1, interruptible=False
        )

    monkeypatch.setattr(ChunkedPrefill, "choose", spoilt)
    with pytest.raises(PolicyError, match=r"event Ran \(replica \d\).* two chunks of one request"):
        execute(static)


FAULTY = [
    (LeastOutstanding, "dispatch", answering((99, "x"))),
    (AdmitAll, "admit", answering("")),
    (ChunkedPrefill, "choose", raising(SystemExit(0))),
]


@pytest.mark.parametrize(("policy", "method", "fault"), FAULTY)
def test_simulate_and_replay_end_with_2_and_the_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    policy: type,
    method: str,
    fault: Any,
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    assert run(["simulate", *STATIC, "journal=true", f"out={good}"]) == 0
    before = {path.name: path.read_bytes() for path in good.iterdir()}
    monkeypatch.setattr(policy, method, fault)
    capsys.readouterr()
    assert run(["simulate", *STATIC, "journal=true", f"out={bad}"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"servetwin: {sentence(policy, method)}Arrived (request 0) at 0.")
    assert run(["simulate", *STATIC, f"out={good}", "overwrite=true"]) == 2
    capsys.readouterr()
    assert run(["replay", str(good)]) == 2
    assert capsys.readouterr() == ("", told)
    assert [path.name for path in tmp_path.iterdir()] == ["good"]
    assert {path.name: path.read_bytes() for path in good.iterdir()} == before


def test_a_fault_on_an_altered_journal_is_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the policy was shown may then be at fault."""
    out = tmp_path / "out"
    assert run(["simulate", *STATIC, "journal=true", f"out={out}"]) == 0
    lines = (out / "journal").read_text().splitlines()
    lines[-2] = lines[-2].replace("[", "[ ", 1)
    (out / "journal").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(LeastOutstanding, "dispatch", answering((99, "x")))
    capsys.readouterr()
    assert run(["replay", str(out)]) == 1
    assert "first difference: line 2: policy policies.dispatch:LeastOutstanding" in capsys.readouterr().out
