"""The journal's text: every event and action there and back, and the file that holds them."""

import json
from dataclasses import astuple, replace
from dataclasses import fields as dataclass_fields
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.results.journal_file import JournalFile, header_fields
from serving.record.journal import (
    FORMAT,
    action_text,
    digest_of,
    event_text,
    footer_text,
    header_text,
    line,
    parse_action,
    parse_event,
)
from serving.record.journal_lines import carries_out, read_header
from serving.vocabulary.actions import (
    Abort,
    Action,
    AllocateGpus,
    Assign,
    Detach,
    Fail,
    Interrupt,
    JoinBatch,
    Load,
    Migrate,
    Preempt,
    Reject,
    ReleaseGpus,
    Run,
    Send,
    Shard,
    StopLoad,
    StopSend,
    SwitchRole,
    Wake,
)
from serving.vocabulary.errors import UserError
from serving.vocabulary.estimates import Estimates, ModelEstimates
from serving.vocabulary.events import (
    Arrived,
    Closing,
    Disconnected,
    Dropped,
    Event,
    Loaded,
    LoadStopped,
    LossNotice,
    Lost,
    LostHost,
    LostLink,
    LostSsd,
    Observed,
    Opened,
    Ran,
    SchedulerBack,
    SchedulerLost,
    Sent,
    Streamed,
    Woke,
)
from serving.vocabulary.request import Request
from simcore.capabilities import carries_out as simulated
from tests.worlds.journals import complete_journal

numbers = st.integers(0, 2**63)
ids = st.lists(numbers, max_size=4).map(tuple)
chunks = st.lists(st.tuples(numbers, numbers, numbers), max_size=4).map(tuple)
words = st.text(max_size=30) | st.sampled_from(
    ['say "no"', "back\\slash", "line\nend", "\x00", "\u2028", "é", "😀"]
)

spans = st.none() | st.tuples(numbers, numbers)
firsts = st.just(0) | numbers
prefixes = st.just(()) | st.lists(st.tuples(numbers, numbers), max_size=3).map(tuple)
requests = st.builds(
    Request, numbers, numbers, numbers, numbers, words, st.integers(-5, 5), st.just(0) | numbers, prefixes
)
events = st.one_of(
    st.builds(Arrived, requests),
    st.builds(Ran, numbers, numbers, numbers, ids, st.booleans(), numbers | st.just(-1), ids),
    st.builds(Streamed, numbers, st.lists(st.tuples(numbers, numbers), max_size=4).map(tuple), ids),
    st.builds(Dropped, numbers, numbers, st.booleans(), words),
    st.builds(Observed, *[numbers] * 8, st.just(0) | numbers, st.just(0) | numbers),
    st.builds(Lost, numbers, words),
    st.builds(LossNotice, words, numbers, numbers, words),
    st.builds(LostHost, numbers, words),
    st.builds(LostSsd, numbers, words),
    st.builds(SchedulerLost, words),
    st.builds(SchedulerBack),
    st.builds(LostLink, words, st.integers(-1, 1 << 40), words),
    st.builds(Disconnected, numbers),
    st.builds(Closing, words),
    st.builds(Opened),
    st.builds(Loaded, numbers, numbers, numbers, st.booleans(), firsts),
    st.builds(LoadStopped, numbers, numbers, numbers, words, firsts),
    st.builds(Sent, numbers, numbers, words),
    st.builds(Woke),
)
stops = st.lists(st.tuples(words, numbers), max_size=4).map(tuple)
amounts = st.floats(0, 1e15)
shards = st.lists(st.builds(Shard, numbers | st.just(-1), numbers, amounts, amounts), max_size=4).map(tuple)
actions = st.one_of(
    st.builds(Assign, numbers, numbers, words),
    st.builds(Reject, numbers, words),
    st.builds(
        Run, numbers, numbers, chunks, st.booleans(), numbers, st.booleans(), words, st.booleans(),
        spans,
    ),
    st.builds(Interrupt, numbers, words, numbers, st.booleans()),
    st.builds(Preempt, numbers, numbers, words),
    st.builds(Detach, numbers, numbers, words),
    st.builds(Migrate, numbers, numbers, numbers, words, words),
    st.builds(Fail, numbers, words),
    st.builds(Abort, numbers, st.just(-1) | numbers, numbers, words),
    st.builds(AllocateGpus, numbers, words, ids, words, st.booleans(), words, spans),
    st.builds(SwitchRole, numbers, words, words),
    st.builds(ReleaseGpus, numbers, words),
    st.builds(
        Load, numbers, words, stops, stops, shards, st.booleans(), st.booleans(), words, st.booleans(), spans
    ),
    st.builds(StopLoad, numbers, words),
    st.builds(
        Send, numbers, words, ids, numbers, numbers, numbers, words, spans,
        st.lists(st.tuples(numbers, numbers), max_size=3).map(tuple), numbers,
    ),
    st.builds(StopSend, numbers, words),
    st.builds(JoinBatch, numbers, ids, words, spans),
    st.builds(Wake, numbers, words),
)  # fmt: skip


def as_json(fact: Event | Action) -> list[Any]:
    """What a journal line should say of it: its name, then its fields in order."""
    fields = astuple(fact)
    if isinstance(fact, Arrived):
        *most, reserved, shared = fields[0]  # said where something is reserved or shared
        fields = (*most, *([reserved, shared] if shared else [reserved] if reserved else []))
    elif isinstance(fact, Ran):
        *most, joins, micro_batch, batch_steps = fields
        in_stages = [joins, micro_batch, batch_steps] if micro_batch >= 0 else []
        fields = (*most, *(in_stages or ([joins] if joins else [])))
    elif isinstance(fact, Observed):
        *most, queried, found = fields
        fields = (*most, *([queried, found] if queried or found else []))
    elif isinstance(fact, Loaded | LoadStopped):
        *most, first = fields
        fields = (*most, *([first] if first else []))
    elif isinstance(fact, Interrupt):
        *most, later = fields
        fields = (*most, *([True] if later else []))
    elif isinstance(fact, Run | Load | Send | AllocateGpus | JoinBatch | Preempt):
        # What is seldom set stands before the reason, up to the last that is set.
        reason = [one.name for one in dataclass_fields(fact)].index("reason")
        seldom = list(fields[reason + 1 :])
        while seldom and seldom[-1] in (False, None, (), 0, -1):
            seldom.pop()
        fields = (*fields[:reason], *seldom, fields[reason])
    plain: list[Any] = json.loads(json.dumps([type(fact).__name__.lower(), *fields]))
    return plain


def canonical(text: str) -> str:
    return json.dumps(json.loads(text), separators=(",", ":"))


def test_the_strategies_know_every_event_and_action() -> None:
    assert get_args(Event) == (
        *(Arrived, Ran, Streamed, Dropped, Observed, Lost, LossNotice, LostHost, LostSsd, LostLink),
        *(SchedulerLost, SchedulerBack, Disconnected, Closing, Opened, Loaded, LoadStopped, Sent, Woke),
    )
    known = {
        Assign,
        Reject,
        Run,
        Interrupt,
        Preempt,
        Fail,
        Abort,
        AllocateGpus,
        SwitchRole,
        ReleaseGpus,
        Load,
        StopLoad,
        Send,
    }
    assert set(get_args(Action)) == known | {StopSend, JoinBatch, Wake, Detach, Migrate}


@given(event=events)
@settings(max_examples=50)
def test_events_come_back_as_they_were(event: Event) -> None:
    text = event_text(event)
    assert json.loads(text) == as_json(event)
    assert parse_event(json.loads(text)) == event
    assert event_text(parse_event(json.loads(text))) == text


def test_an_arrival_says_what_its_prompt_shares_and_a_line_without_it_reads_as_nothing_shared() -> None:
    plain, shares = Request(9, 5, 64, 8, "m"), ((5, 32), (7, 48))
    assert event_text(Arrived(plain)) == '["arrived",9,5,64,8,"m",0]'
    assert parse_event(["arrived", 9, 5, 64, 8, "m", 0]) == Arrived(plain)
    sharing = Arrived(replace(plain, shared_prefix=shares))
    assert event_text(sharing) == '["arrived",9,5,64,8,"m",0,0,[[5,32],[7,48]]]'
    assert parse_event(json.loads(event_text(sharing))) == sharing


@given(action=actions)
@settings(max_examples=50)
def test_action_text_is_canonical_json(action: Action) -> None:
    text = action_text(action)
    assert json.loads(text) == as_json(action)
    assert canonical(text) == text, "replay compares words, so equal actions must have equal words"
    assert parse_action(json.loads(text)) == action


@pytest.mark.parametrize(
    "fields",
    [
        ["assign", 1, 2],
        ["assign", 1, 2, "", 4],
        ["fly", 1],
        ["run", 0, 0],
        ["load", 1, "", [], [], [1], True, True, ""],
    ],
)
def test_what_is_no_action_is_refused(fields: list[Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        parse_action(fields)


def test_what_older_journals_do_not_know_is_written_only_where_it_is_used() -> None:
    plain = Load(3, "m", (("host", 1),), (("replica", 2),), (), True, False, "scale up")
    assert action_text(plain) == '["load",3,"m",[["host",1]],[["replica",2]],[],true,false,"scale up"]'
    first = replace(plain, layers_first=True)
    assert action_text(first) == '["load",3,"m",[["host",1]],[["replica",2]],[],true,false,true,"scale up"]'
    run = Run(1, 0, ((7, 0, 9),), False, 1, True, "prompts")
    assert action_text(run) == '["run",1,0,[[7,0,9]],false,1,true,"prompts"]'
    some = replace(run, layers=(2, 5))
    assert action_text(some) == '["run",1,0,[[7,0,9]],false,1,true,false,[2,5],"prompts"]'
    part = replace(plain, layers=(8, 16))
    assert action_text(part).endswith('[],true,false,false,[8,16],"scale up"]')
    kv = Send(0, "kv", (5, 6), 1, 2, 64, "room")
    assert action_text(kv) == '["send",0,"kv",[5,6],1,2,64,"room"]'
    positions = replace(kv, positions=((0, 100), (0, 7)))
    assert action_text(positions) == '["send",0,"kv",[5,6],1,2,64,null,[[0,100],[0,7]],"room"]'
    layers = replace(positions, layers=(8, 16))
    assert action_text(layers) == '["send",0,"kv",[5,6],1,2,64,[8,16],[[0,100],[0,7]],"room"]'
    assert event_text(Loaded(3, 0, 2, False)) == '["loaded",3,0,2,false]'
    assert event_text(Loaded(3, 0, 2, False, 8)) == '["loaded",3,0,2,false,8]'


@given(now_ns=numbers, event=events, answered=st.lists(actions, max_size=4))
@settings(max_examples=50)
def test_a_line_is_one_json_array_in_ascii(now_ns: int, event: Event, answered: list[Action]) -> None:
    text = line(now_ns, event, answered)
    assert text.isascii() and text.isprintable()
    assert json.loads(text) == [now_ns, as_json(event), [as_json(action) for action in answered]]
    assert canonical(text) == text


@given(first=actions, second=actions)
def test_different_actions_have_different_words(first: Action, second: Action) -> None:
    assert (action_text(first) == action_text(second)) == (first == second)


@pytest.mark.parametrize(
    "fields",
    [
        [],
        ["gone", 1],
        ["Ran", 0, 0, 1, [], False, -1],
        ["ran", 0, 0, 1, [], False],
        ["ran", 0, 0, 1, [], False, 0, 0],
        ["ran", 0, 0, 1, None, False, -1],
        ["arrived", 1],
        ["arrived", 0, 0, 1, 1, "m", 0, 0, 0],
        ["arrived", 0, 0, 1, 1, "m", 0, 0],
        ["arrived", 0, 0, 1, 1, "m", 0, 0, []],
        ["arrived", 0, 0, 1, 1, "m", 0, 0, [[1]]],
        ["arrived", 0, 0, 1, 1, "m", 0, 0, [[1, 2]], 0],
        ["lost", 1],
        ["lost", -1, "cause"],
        ["ran", -1, 0, 1, [], False, -1],
        ["ran", 0, 0, -1, [], False, -1],
        ["lost", 1, "cause", "cause"],
        ["opened", 1],
        ["woke", 1],
        ["woke", []],
        ["woke", [[1]]],
        ["woke", [[0, -1]]],
        ["loaded", 1, 2, 3],
        ["loaded", 1, -2, 3, True],
        ["loaded", 1, 2, 3, True, 0],
        ["loadstopped", 1, 2, 3, "", 0],
        ["loadstopped", 1, 2, 3],
        ["sent", -1, 2, ""],
        [["ran"], 0, 0, 1, [], False, -1],
    ],
)
def test_what_is_no_event_is_refused(fields: list[Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        parse_event(fields)


def test_header_and_footer_are_sorted_json_objects() -> None:
    assert (
        header_text({"source": "simulated", "seed": 3})
        == '{"seed":3,"servetwin_journal":6,"source":"simulated"}'
    )
    fields = {"seed": 3, "carries_out": ["Assign", "Run"]}
    header = read_header(json.loads(header_text(fields)), "journal")
    assert header == {"servetwin_journal": FORMAT, **fields}
    assert carries_out(header, "journal") == {"Assign", "Run"}
    assert footer_text(4, 9, "ab") == '{"actions":9,"events":4,"sha256":"ab"}'


EVENT = Lost(0, "gone")


def test_a_journal_file_has_header_lines_and_footer(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with JournalFile(path, {"seed": 1}) as journal:
        journal.write(5, EVENT, [Fail(2, "gone"), Fail(3, "gone")])
        journal.write(6, EVENT, [])
    text = path.read_text(encoding="ascii")
    *lines, footer, end = text.split("\n")
    assert lines == [
        '{"seed":1,"servetwin_journal":6}',
        '[5,["lost",0,"gone"],[["fail",2,"gone"],["fail",3,"gone"]]]',
        '[6,["lost",0,"gone"],[]]',
    ]
    assert (footer, end) == (footer_text(2, 2, digest_of(lines)), "")
    assert [*lines, footer] == complete_journal({"seed": 1}, lines[1:], 2)


@pytest.mark.parametrize("events", [0, 1, 2046, 2047, 2048, 2049, 5000])
def test_a_journal_file_of_any_length_is_whole(tmp_path: Path, events: int) -> None:
    path = tmp_path / "journal"
    with JournalFile(path, {}) as journal:
        for now_ns in range(events):
            journal.write(now_ns, EVENT, [Fail(2, "gone")])
    written = path.read_bytes()
    lines = written.splitlines(keepends=True)
    assert len(lines) == events + 2
    assert [json.loads(text)[0] for text in lines[1:-1]] == list(range(events))
    digest = sha256(b"".join(lines[:-1])).hexdigest()
    assert json.loads(lines[-1]) == {"events": events, "actions": events, "sha256": digest}


def test_a_run_that_fails_leaves_a_journal_without_footer(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with pytest.raises(KeyboardInterrupt), JournalFile(path, {}) as journal:
        journal.write(5, EVENT, [])
        raise KeyboardInterrupt
    assert path.read_text(encoding="ascii") == '{"servetwin_journal":6}\n[5,["lost",0,"gone"],[]]\n'


@pytest.mark.parametrize("events", [0, 1, 5])
def test_a_journal_written_at_once_is_there_after_every_event(tmp_path: Path, events: int) -> None:
    path, other = tmp_path / "journal", tmp_path / "other"
    with JournalFile(path, {"seed": 1}, at_once=True) as journal, JournalFile(other, {"seed": 1}) as later:
        assert path.read_text(encoding="ascii") == '{"seed":1,"servetwin_journal":6}\n'
        for now_ns in range(events):
            journal.write(now_ns, EVENT, [])
            later.write(now_ns, EVENT, [])
            assert len(path.read_bytes().splitlines()) == now_ns + 2, "the header and the events so far"
            assert other.read_bytes() == b""
    assert path.read_bytes() == other.read_bytes()


def estimates_of(decode_step_s: float = 0.01, source: str = "made up") -> Estimates:
    return Estimates(
        (
            ModelEstimates(
                model="m",
                prefill_tokens_per_s=1000.0,
                decode_step_s=decode_step_s,
                decode_sequences=8,
                decode_context_tokens=1024,
                kv_tokens=9000,
            ),
        ),
        source,
    )


def test_the_header_tells_seed_configuration_and_estimates_apart() -> None:
    same = header_fields("simulated", 1, "a: 1\n", estimates_of())
    assert same == header_fields("simulated", 1, "a: 1\n", estimates_of())
    others = [
        ("source", header_fields("real", 1, "a: 1\n", estimates_of())),
        ("seed", header_fields("simulated", 2, "a: 1\n", estimates_of())),
        ("config_sha256", header_fields("simulated", 1, "a: 2\n", estimates_of())),
        ("estimates_sha256", header_fields("simulated", 1, "a: 1\n", estimates_of(0.02))),
        ("estimates_sha256", header_fields("simulated", 1, "a: 1\n", estimates_of(source="else"))),
    ]
    for key, other in others:
        assert [name for name in same if same[name] != other[name]] == [key]


def test_an_older_journal_is_refused_with_its_format_and_what_to_do() -> None:
    with pytest.raises(UserError) as refused:
        read_header({"servetwin_journal": 5, "seed": 3}, "out/journal")
    assert str(refused.value) == (
        "out/journal: the first line is a journal header of format 5, and this version reads format 6: "
        "run again, or read it with the version that wrote it"
    )


@pytest.mark.parametrize("found", [None, "Run", ["Run", "Fly"], [1], {"Run": 1}])
def test_a_header_names_the_actions_that_its_driver_carries_out(found: object) -> None:
    header = {"servetwin_journal": FORMAT} | ({} if found is None else {"carries_out": found})
    with pytest.raises(UserError, match=r"has carries_out .*, not a list of names of actions"):
        read_header(header, "journal")


def test_every_driver_declares_what_it_carries_out() -> None:
    from realexec.world.actions import CARRIES_OUT

    every = set(get_args(Action))
    assert simulated(data_plane=True, clients_leave=True) == every
    assert simulated(data_plane=True) == every - {Abort}
    assert simulated(data_plane=False) == {
        *(Assign, Reject, Fail, Run, Interrupt, Preempt, Detach, Migrate, JoinBatch, SwitchRole, Wake),
    }
    assert every - {Abort} == CARRIES_OUT
    static = frozenset((Assign, Reject, Run, Interrupt, Preempt, Fail))
    fields = header_fields("simulated", 1, "", estimates_of(), static)
    assert fields["carries_out"] == ["Assign", "Fail", "Interrupt", "Preempt", "Reject", "Run"]
