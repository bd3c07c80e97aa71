"""Replay: a recorded run gives no difference; whatever is done to its journal shows, with a line number."""

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.admission import AdmitAll
from policies.batching import ChunkedPrefill, PrefillFirst
from policies.dispatch import LeastOutstanding
from servetwin.cli import main as cli
from serving.composition import compose
from serving.controller import Controller
from serving.protocols.batch import Batcher
from serving.record.journal import line
from serving.record.replay import ReplayReport, replay
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Arrived, Event, Lost, Ran
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request
from tests.worlds.journals import complete_journal
from tests.worlds.naive_engine import Case
from tests.worlds.strategies import NS, cases
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import controller_of, simulate

# Two crowded replicas: admissions, interrupts, preemptions, chunks over several steps and a rejection.
CROWD = Case(
    batcher="chunked",
    replicas=2,
    block_tokens=4,
    total_blocks=6,
    watermark_blocks=0,
    max_num_seqs=3,
    max_num_batched_tokens=6,
    dispatch="least_outstanding",
    requests=(
        (0, 5, 8, 12),
        (3, 9, 3, 10),
        (6, 2, 12, 14),
        (9, 7, 6, 9),
        (12, 30, 1, 1),
        (15, 3, 9, 12),
        (18, 10, 2, 4),
        (21, 4, 12, 15),
    ),
    rows=ToyRows(intercept=3 * NS, per_sequence=NS // 2, slope=1, mixed_intercept=4 * NS, per_token=NS),
)

Journal = list[str]


def journal_of(lines: Journal) -> Journal:
    actions = sum(len(json.loads(text)[2]) for text in lines)
    return complete_journal({"source": "test", "carries_out": []}, lines, actions)


@cache
def recorded() -> tuple[str, ...]:
    return tuple(journal_of(simulate(CROWD)[2].lines))


def judged(journal: Journal, case: Case = CROWD) -> str:
    """What replay says of a journal: 'clean', the first difference, or 'refused: ...'."""
    try:
        report = replay(journal, controller_of(case))
    except UserError as error:
        return f"refused: {error}"
    assert (report.different > 0) == (report.first_difference is not None)
    return report.first_difference or report.cut or "clean"


def numbered(kind: str, nth: int = 0) -> int:
    """Line number of the nth line with this event, or with an action of this kind."""
    found = [
        number
        for number, text in enumerate(recorded(), start=1)
        if text.startswith("[")
        and (json.loads(text)[1][0] == kind or kind in [a[0] for a in json.loads(text)[2]])
    ]
    return found[nth]


def altered(number: int, change: Callable[[Any], None]) -> Journal:
    """The recorded journal with the content of one line changed in place, its form kept."""
    journal = list(recorded())
    content = json.loads(journal[number - 1])
    change(content)
    journal[number - 1] = json.dumps(content, separators=(",", ":"))
    assert journal != list(recorded())
    return journal


OTHER_LINES = "footer: the lines above were changed (their sha256 differs)"


def put(*path: int, value: object) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        for index in path[:-1]:
            content = content[index]
        content[path[-1]] = value

    return change


# --- what was recorded replays ---


def test_the_recorded_run_shows_every_kind_of_action() -> None:
    kinds = {action[0] for text in recorded()[1:-1] for action in json.loads(text)[2]}
    assert kinds == {"assign", "reject", "run", "interrupt", "preempt"}


def test_an_untouched_journal_has_no_difference() -> None:
    lines = [json.loads(text) for text in recorded()[1:-1]]
    actions = sum(len(content[2]) for content in lines)
    assert replay(recorded(), controller_of(CROWD)) == ReplayReport(len(lines), actions, 0, None)


@given(case=cases(), coalesce=st.booleans())
@settings(max_examples=33)
def test_every_simulated_run_replays(case: Case, coalesce: bool) -> None:
    lines = simulate(case, coalesce)[2].lines
    report = replay(journal_of(lines), controller_of(case, coalesce))
    assert (report.events, report.different, report.first_difference) == (len(lines), 0, None)


def controller_for(batcher: Callable[[], Batcher], replicas: int = 2) -> Controller:
    group = [
        Replica(id=id, model="m", layers=LayerRange(0, 2), gpus=(id,), kv_blocks=16, block_tokens=4)
        for id in range(replicas)
    ]
    return compose(group, LeastOutstanding(), lambda _: batcher(), admission=AdmitAll())


def chunked_controller(replicas: int = 2) -> Controller:
    return controller_for(lambda: ChunkedPrefill(4, 8), replicas)


def record(controller: Controller, *events: Event) -> Journal:
    return journal_of(
        [line(time, event, controller.handle(time, event)) for time, event in enumerate(events)]
    )


def arrival(request: int, prompt_tokens: int = 6) -> Arrived:
    return Arrived(Request(request, 0, prompt_tokens, 30, "m"))


def test_losses_late_reports_and_rejections_replay() -> None:
    journal = record(
        chunked_controller(),
        arrival(0),
        arrival(1),
        Lost(0, 'host "a" gone'),
        Ran(0, 0, 3, (0,)),
        Lost(0, "again"),
        arrival(2),
        Lost(1, "power"),
        arrival(3),
    )
    assert [text for text in journal if '"fail"' in text or "alive" in text]
    assert replay(journal, chunked_controller()) == ReplayReport(8, 10, 0, None)


def test_another_policy_is_another_controller() -> None:
    report = replay(recorded(), controller_of(CROWD, coalesce=False))
    assert report.different > 1
    assert report.first_difference is not None
    assert report.first_difference.startswith("line 2: action 2 was ")


# --- what was altered shows ---

ASSIGN, RUN, PREEMPT, REJECT, RAN = (numbered(kind) for kind in ("assign", "run", "preempt", "reject", "ran"))
FINISH = next(n for n in range(2, len(recorded())) if json.loads(recorded()[n - 1])[1][4:5] == [[1]])

ALTERED_LINES = {
    "changed reason": (
        ASSIGN,
        put(2, 0, -1, value="1 outstanding"),
        'action 1 was ["assign",0,0,"1 outstanding"]',
    ),
    "changed replica of an assignment": (ASSIGN, put(2, 0, 2, value=1), 'action 1 was ["assign",0,1,'),
    "changed replica of a run": (RUN, put(2, 1, 1, value=1), 'action 2 was ["run",1,'),
    "changed request of a preemption": (PREEMPT, put(2, 0, 2, value=0), 'action 1 was ["preempt",0,0,'),
    "changed number of steps": (RUN, put(2, 1, 5, value=16), 'action 2 was ["run",0,'),
    "changed kind of action": (REJECT, put(2, 0, 0, value="fail"), 'action 1 was ["fail",4,'),
    "action of another shape": (REJECT, put(2, 0, value={"reject": 4}), 'action 1 was {"reject":4}'),
    "action that is no array": (REJECT, put(2, 0, value=None), "action 1 was null"),
    "removed action": (ASSIGN, lambda content: content[2].pop(), "action 2 was nothing, replay gives"),
    "removed first action": (ASSIGN, lambda content: content[2].pop(0), 'action 1 was ["run",'),
    "added action": (
        ASSIGN,
        lambda content: content[2].append(["interrupt", 0, "x"]),
        "replay gives nothing",
    ),
    "swapped actions": (ASSIGN, lambda content: content[2].reverse(), 'action 1 was ["run",'),
    "changed prompt": (ASSIGN, put(1, 3, value=6), "action 2 was"),
    "changed model": (ASSIGN, put(1, 5, value="other"), "action 1 was"),
    "changed request": (ASSIGN, put(1, 1, value=100), "action 1 was"),
    "request that is in flight already": (numbered("assign", 1), put(1, 1, value=0), "action 1 was"),
    "changed replica of a report": (RAN, put(1, 1, value=1), "action 1 was"),
    "replica that does not exist": (RAN, put(1, 1, value=9), "this event cannot follow"),
    "epoch to come": (RAN, put(1, 2, value=1), "an epoch that has not begun"),
    "epoch long past": (RAN, put(1, 2, value=-1), "replay gives nothing"),
    "report of a run that goes on": (RAN, put(1, 5, value=True), "replay gives nothing"),
    "more steps than were asked for": (RAN, put(1, 3, value=1000), "this event cannot follow"),
    "negative steps": (RAN, put(1, 3, value=-1), ""),
    "steps of another type": (RAN, put(1, 3, value="1"), "this event cannot follow"),
    "forgotten finish": (FINISH, put(1, 4, value=[]), "action 1 was"),
    "finish of nobody": (FINISH, put(1, 4, value=[99]), "this event cannot follow"),
    "finish told twice": (FINISH, put(1, 4, value=[1, 1]), "this event cannot follow"),
    "finished that is no list": (FINISH, put(1, 4, value=1), "this event cannot follow"),
    "event of another kind": (RAN, put(1, value=["lost", 0, "x"]), "action 1 was"),
    "event of no kind": (RAN, put(1, value=["moved", 0]), "this event cannot follow"),
    "event without fields": (RAN, put(1, value=[]), "this event cannot follow"),
    "time that goes back": (RAN, put(0, value=0), "the clock went back"),
}


@pytest.mark.parametrize(("number", "change", "words"), ALTERED_LINES.values(), ids=ALTERED_LINES)
def test_an_altered_line_is_named(number: int, change: Callable[[Any], None], words: str) -> None:
    said = judged(altered(number, change))
    assert said.startswith(f"line {number}: ") and words in said


@pytest.mark.parametrize(
    "content",
    [None, 1, "text", [], [1, []], [1, [], [], []], ["1", [], []], [1, {}, []], [1, [], {}], [1.5, [], []]],
)
def test_a_line_of_another_shape_is_refused_with_its_number(content: object) -> None:
    journal = list(recorded())
    journal[RAN - 1] = json.dumps(content)
    assert judged(journal).startswith(
        f"refused: journal: line {RAN} is cut or altered (the line is not [time, "
    )


def test_a_plausible_other_fact_is_named_where_the_runs_part() -> None:
    """Request 3 is on that replica too: the same run follows, the difference comes with the next report."""
    said = judged(altered(FINISH, put(1, 4, value=[3])))
    later = next(
        n for n in range(FINISH + 1, len(recorded())) if recorded()[n - 1].split(",")[1:3] == ['["ran"', "1"]
    )
    assert said.startswith(f"line {later}: action 1 was ")


def test_every_removed_line_shows() -> None:
    for index in range(len(recorded())):
        journal = list(recorded())
        del journal[index]
        assert judged(journal) != "clean", f"without line {index + 1}"


def test_every_doubled_line_shows() -> None:
    for index in range(len(recorded())):
        journal = list(recorded())
        journal.insert(index, journal[index])
        assert judged(journal) != "clean", f"line {index + 1} twice"


def test_all_swapped_lines_show() -> None:
    for index in range(len(recorded()) - 1):
        journal = list(recorded())
        journal[index : index + 2] = reversed(journal[index : index + 2])
        assert judged(journal) != "clean", f"lines {index + 1} and {index + 2} swapped"


def test_swapped_lines_of_one_time_show_though_nobody_decided_otherwise() -> None:
    journal = list(recorded())
    index = next(
        i
        for i in range(1, len(journal) - 2)
        if journal[i].split(",")[0] == journal[i + 1].split(",")[0] and '"arrived"' in journal[i]
    )
    journal[index : index + 2] = reversed(journal[index : index + 2])
    assert judged(journal) == OTHER_LINES


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (3, put(0, value=4)),
        (3, put(1, 2, value=1)),
        (3, put(1, 4, value=13)),
        (3, put(1, 6, value=5)),
        (RAN, put(1, 3, value=True)),
    ],
    ids=["time", "arrival_ns", "max_new_tokens", "priority", "true for 1"],
)
def test_a_changed_fact_shows_though_nobody_decided_on_it(number: int, change: Callable[[Any], None]) -> None:
    assert judged(altered(number, change)) == OTHER_LINES


def test_a_changed_header_shows() -> None:
    assert judged([recorded()[0].replace("test", "rest"), *recorded()[1:]]) == OTHER_LINES


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put(1, 2, value=1), "line {}: this event cannot follow the events before it"),
        (put(1, 2, value=-1), "after the last line: 1 requests are still in flight"),
        (put(1, 5, value=True), "line {}: this event cannot follow the events before it"),
        (put(1, 3, value=1), OTHER_LINES),
    ],
    ids=["epoch to come", "epoch past", "goes on", "steps"],
)
def test_a_changed_last_report_shows(change: Callable[[Any], None], said: str) -> None:
    last = len(recorded()) - 1
    assert json.loads(recorded()[last - 1])[1][0] == "ran"
    assert judged(altered(last, change)).startswith(said.format(last))


def test_a_negative_replica_shows() -> None:
    """It would count from the end of a list."""
    journal = record(chunked_controller(), arrival(0, 20), arrival(1, 20), Ran(1, 0, 1, ()))
    journal[3] = journal[3].replace('["ran",1,', '["ran",-1,')
    first = replay(journal, chunked_controller()).first_difference
    assert (first or "").startswith("line 4: this event cannot follow")


def test_a_prefill_report_of_no_steps_shows() -> None:
    def prefill_first() -> Controller:
        return controller_for(lambda: PrefillFirst(4, 8), replicas=1)

    journal = record(prefill_first(), arrival(0), Ran(0, 0, 3, ()), Ran(0, 0, 1, (0,)))
    journal[2] = journal[2].replace('["ran",0,0,3,', '["ran",0,0,0,')
    first = replay(journal, prefill_first()).first_difference
    assert (first or "").startswith("line 3: action 1 was")


@pytest.mark.parametrize("number", [1, RAN])
def test_deeply_nested_junk_is_refused(number: int) -> None:
    journal = list(recorded())
    journal[number - 1] = "[" * 100_000
    assert judged(journal).startswith(f"refused: journal: line {number} is cut or altered")


def test_a_cut_anywhere_is_told_with_its_line_and_the_lines_before_are_compared() -> None:
    for number in (2, RAN, len(recorded())):
        text = recorded()[number - 1]
        for length in range(len(text)):
            lines = [*(f"{line}\n" for line in recorded()[: number - 1]), text[:length]]
            report = replay(lines, controller_of(CROWD))
            assert (report.events, report.different) == (number - 2, 0)
            assert (report.cut or "").startswith(f"journal breaks off in line {number} and has no footer: ")
    for length in range(len(recorded()[0])):
        said = judged([recorded()[0][:length]])
        assert said.startswith("refused: journal: line 1 is cut or altered")


def test_a_cut_between_lines_is_told() -> None:
    for length in range(1, len(recorded())):
        report = replay(recorded()[:length], controller_of(CROWD))
        assert (report.events, report.first_difference) == (length - 1, None)
        assert (report.cut or "").startswith(f"journal ends behind line {length} and has no footer: ")


def test_a_difference_before_the_cut_is_named_too() -> None:
    journal = altered(ASSIGN, ALTERED_LINES["changed prompt"][1])[: ASSIGN + 3]
    report = replay(journal, controller_of(CROWD))
    assert (report.first_difference or "").startswith(f"line {ASSIGN}: ") and report.cut is not None


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_line_that_breaks_off_before_others_is_refused(end: str) -> None:
    journal = [f"{line}\n" for line in recorded()]
    journal[RAN - 1] = recorded()[RAN - 1][:30] + end
    assert judged(journal).startswith(f"refused: journal: line {RAN} is cut or altered")
    assert judged([*journal[: RAN - 1], "[1,\n"]).startswith(f"refused: journal: line {RAN} is cut")


def test_nothing_at_all_is_no_journal() -> None:
    assert judged([]).startswith("refused: journal: line 1 is cut or altered")


@pytest.mark.parametrize(
    "header",
    [
        "{}",
        "[]",
        "null",
        "1",
        '{"servetwin_journal":"1"}',
        '{"events":0,"actions":0}',
    ],
)
def test_another_header_or_format_is_refused(header: str) -> None:
    assert judged([header, *recorded()[1:]]).startswith(
        "refused: journal: the first line is not a ServeTwin journal"
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda counts: {},
        lambda counts: {key: counts[key] for key in counts if key != "actions"},
        lambda counts: counts | {"events": counts["events"] - 1},
        lambda counts: counts | {"actions": counts["actions"] + 1},
    ],
)
def test_a_footer_that_counts_otherwise_is_a_difference(
    change: Callable[[dict[str, int]], dict[str, int]],
) -> None:
    counts = json.loads(recorded()[-1])
    footer = change(counts)
    said = judged([*recorded()[:-1], json.dumps(footer)])
    held = {"events": counts["events"], "actions": counts["actions"]}
    assert said == f"footer: the footer has {footer}, the journal has {held}"


@pytest.mark.parametrize("digest", ["", "0" * 64, None])
def test_a_footer_with_another_digest_is_a_difference(digest: str | None) -> None:
    footer = json.loads(recorded()[-1]) | {"sha256": digest}
    assert judged([*recorded()[:-1], json.dumps(footer)]) == OTHER_LINES


def test_a_run_that_has_not_come_to_its_end_is_a_difference() -> None:
    assert judged(journal_of(list(recorded()[1:-2]))) == "after the last line: 1 requests are still in flight"


def test_lines_behind_the_footer_are_refused() -> None:
    said = judged([*recorded(), recorded()[-2]])
    assert (
        said
        == f"refused: journal: line {len(recorded()) + 1} follows the footer; use a journal as it was written"
    )


def test_the_first_of_many_differences_is_named_and_all_are_counted() -> None:
    def change(content: Any) -> None:
        for action in content[2]:
            action[-1] = "other"

    journal = altered(RUN, change)
    journal[RAN - 1] = journal[RAN - 1].replace('"chunked"', '"other"')
    report = replay(journal, controller_of(CROWD))
    assert report.different == 3
    assert (report.first_difference or "").startswith(f"line {RUN}: action 1 was")


@given(data=st.data())
@settings(max_examples=75)
def test_no_altered_text_is_clean_or_makes_replay_stumble(data: st.DataObject) -> None:
    """Characters replaced, dropped or put in anywhere: a difference or a refusal, never another error."""
    text = "\n".join(recorded())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        dropped = data.draw(st.integers(0, 3))
        added = data.draw(st.text(st.sampled_from('0123456789-.,:"[]{}\n\x00etrufalsn'), max_size=3))
        text = text[:at] + added + text[at + dropped :]
    journal = text.split("\n")
    said = judged(journal)
    while not journal[-1]:
        journal.pop()  # empty lines behind the footer are forgiven
    assert said != "clean" or journal[:-1] == list(recorded()[:-1])


# --- the command ---


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    words = ["simulate", "trace=azure_conv_like", "trace.requests=50", "journal=true", f"out={folder}"]
    assert cli.run(words) == 0
    return folder


@pytest.fixture
def copy(result: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(result, tmp_path / "copy"))


def edit(folder: Path, change: Callable[[list[bytes]], list[bytes]], file: str = "journal") -> None:
    path = folder / file
    path.write_bytes(b"\n".join(change(path.read_bytes().split(b"\n"))))


def test_replay_command_finds_no_difference(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    footer = json.loads((result / "journal").read_text().splitlines()[-1])
    assert cli.run(["replay", str(result)]) == 0
    counts = f"{footer['actions']} actions of {footer['events']} events compared, 0 differ\n"
    assert capsys.readouterr() == (counts, "")


def test_replay_command_refuses_a_journal_of_another_configuration(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(
        copy,
        lambda lines: [text.replace(b"max_num_seqs: 256", b"max_num_seqs: 128") for text in lines],
        "config.yaml",
    )
    assert cli.run(["replay", str(copy)]) == 2
    assert "another config_sha256 than config.yaml gives" in capsys.readouterr().err
