"""servetwin story: what a journal tells of one request and of one instance, to the line."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as pq
import pytest

from policies.admission import AdmitAll
from policies.batching import ChunkedPrefill
from policies.dispatch import LeastOutstanding
from servetwin.cli import main as cli
from servetwin.story import cluster_state, of_instance, of_request
from servetwin.story.cluster_state import ClusterState
from servetwin.story.line import StoryLine, seconds, size
from servetwin.story.moments import JournalReader, Moment
from servetwin.story.of_instance import InstanceRecord, instance_story
from servetwin.story.of_request import request_story
from servetwin.story.overview import overview_of
from servetwin.story.request_record import RequestRecord
from serving.composition import compose
from serving.record.journal import line
from serving.vocabulary.actions import (
    Action,
    AllocateGpus,
    JoinBatch,
    Load,
    ReleaseGpus,
    Run,
    Send,
    StopLoad,
    StopSend,
    SwitchRole,
)
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Arrived, Event, Loaded, LoadStopped, Lost, Ran, Sent
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request
from tests.worlds.golden import assert_golden
from tests.worlds.journals import complete_journal

ROOT = Path(__file__).resolve().parents[2]
S = 1_000_000_000
Told = list[tuple[float, str, str]]
Captured = pytest.CaptureFixture[str]


def recorded(*events: tuple[float, Event]) -> list[str]:
    """What two replicas of 8 blocks of 4 tokens, 8 tokens a step, answer to these."""
    group = [
        Replica(id=id, model="m", layers=LayerRange(0, 2), gpus=(id,), kv_blocks=8, block_tokens=4)
        for id in range(2)
    ]
    controller = compose(group, LeastOutstanding(), lambda _: ChunkedPrefill(4, 8), admission=AdmitAll())
    rows = [(round(at_s * S), event) for at_s, event in events]
    return journal_of([(now_ns, event, controller.handle(now_ns, event)) for now_ns, event in rows])


def journal_of(rows: Iterable[tuple[int, Event, Iterable[Action]]]) -> list[str]:
    answered = [(now_ns, event, tuple(actions)) for now_ns, event, actions in rows]
    lines = [line(*row) for row in answered]
    header = {"source": "real", "seed": 7, "carries_out": []}
    return complete_journal(header, lines, sum(len(actions) for _, _, actions in answered))


def arrival(request: int, prompt_tokens: int, most: int = 14) -> Arrived:
    return Arrived(Request(request, 0, prompt_tokens, most, "m"))


def moments(text: Iterable[str]) -> Iterator[Moment]:
    return JournalReader((f"{one}\n" for one in text), "journal").moments()


def plain(lines: Iterable[StoryLine]) -> Told:
    return [(one.now_ns / S, one.what, one.why) for one in lines]


def plain_ms(told: Told) -> list[tuple[int, str, str]]:
    return [(round(at_s * 1000), what, why) for at_s, what, why in told]


def of_one(text: Iterable[str], request: int, first_token_ns: int | None = None) -> Told:
    return plain(request_story(moments(text), RequestRecord(id=request, first_token_ns=first_token_ns)))


def assert_told(name: str, told: Told) -> None:
    rows = [f"{at_s:>10.3f}  {what}" + (f"  [{why}]" if why else "") for at_s, what, why in told]
    assert_golden(f"story/{name}", "\n".join(rows) + "\n")


def of_replica(text: Iterable[str], replica: int) -> Told:
    return plain(instance_story(moments(text), InstanceRecord(id=replica)))


# --- every kind is known ---


@pytest.mark.parametrize("module", [cluster_state, of_request, of_instance])
def test_every_event_and_action_has_its_function(module: Any) -> None:
    assert set(module.EVENTS) == set(get_args(Event))
    assert set(module.ACTIONS) == set(get_args(Action))


# --- one request ---

CHUNKED = (
    (0.0, arrival(0, 12)),
    (0.5, Ran(0, 0, 1, ())),
    (1.0, arrival(1, 3)),
    (1.5, Ran(0, 0, 3, ())),
    (2.0, Ran(0, 0, 2, (0,))),
)


def test_a_request_from_arrival_to_finish() -> None:
    """Its prompt ends in a run of several steps, of which the journal has only the end."""
    assert_told("a_request_from_arrival_to_finish", of_one(recorded(*CHUNKED), 0))


def test_the_first_token_is_that_of_requests_parquet() -> None:
    told = of_one(recorded(*CHUNKED), 0, first_token_ns=S)
    assert told[4] == (1.0, "first token", "from requests.parquet")
    assert told[6] == (2.0, "decoded 4 tokens after 1.000000 s, one a step, alone (2 reports)", "")
    assert told[-1][1] == "in all 2.000000 s: waiting 0.000000 s, prompt 1.000000 s, decoding 1.000000 s"


CROWDED = (
    (0.0, arrival(0, 8)),
    (0.1, arrival(2, 8)),
    (0.2, arrival(1, 8)),
    (1.0, Ran(0, 0, 1, ())),
    (2.0, Ran(0, 0, 1, ())),
    (3.0, Ran(0, 0, 5, ())),
    (4.0, Ran(0, 0, 2, ())),
    (5.0, Ran(0, 0, 1, (0,))),
    (6.0, Ran(0, 0, 1, ())),
    (7.0, Ran(0, 0, 3, (1,))),
)


def test_a_request_that_is_preempted_and_comes_back() -> None:
    assert_told("a_request_that_is_preempted_and_comes_back", of_one(recorded(*CROWDED), 1))


def test_a_request_that_is_rejected() -> None:
    assert of_one(recorded((0.5, arrival(4, 30))), 4)[1:] == [
        (0.5, "is rejected", "prompt + max_new_tokens exceed the 32 KV tokens of a replica")
    ]


LOSS = (
    (0.0, arrival(0, 8)),
    (0.1, arrival(2, 8)),
    (1.0, Ran(1, 0, 1, ())),
    (1.5, Ran(1, 0, 4, ())),
    (1.6, Lost(1, "worker 1 ended with -9")),
    (1.7, Ran(1, 0, 3, (2,))),
)


def test_a_request_whose_instance_is_lost() -> None:
    assert_told("a_request_whose_instance_is_lost", of_one(recorded(*LOSS), 2)[2:])


def test_an_instance_that_is_lost() -> None:
    assert_told("an_instance_that_is_lost", of_replica(recorded(*LOSS), 1))


def test_a_real_run_that_lost_a_worker() -> None:
    """Recorded from two own workers, one of which was ended by SIGKILL while requests were on it."""
    text = (ROOT / "tests" / "data" / "real_run_worker_lost.journal").read_text().splitlines()
    cause = "the worker process was ended by SIGKILL"
    assert_told("a_real_run_that_lost_a_worker", plain_ms(of_one(text, 1)))
    assert plain_ms(of_replica(text, 1))[1:] == [
        (
            424,
            "since 0.025797 s: 1 run with 1 step, busy 100 % of 0.398685 s; 7 assigned requests; 256 prompt "
            "tokens",
            "",
        ),
        (424, "is lost with all it held", cause),
        (6811, "the journal ends", ""),
    ]


# --- hand-over, layers, loads: what a journal of an elastic run has ---

KV, ACTIVATIONS = (
    Send(n, what, (5, 6), 0, 1, 3_000_000, "room") for n, what in enumerate(("kv", "activations"))
)
DECODES = Run(1, 0, (), True, 9, False, "decode")
COPY = Load(4, "m", (("replica", 1),), (("host", 2),), (), False, False, "a copy")
LIFE: list[tuple[int, Event, list[Action]]] = [
    (
        1 * S,
        arrival(5, 10),
        [
            AllocateGpus(1, "m", (4, 5), "prefill", False, "no room"),
            Load(3, "m", (("ssd", 0),), (("replica", 1), ("replica", 2)), (), True, True, "backlog of 9"),
            Run(0, 0, ((5, 0, 10), (6, 0, 4)), False, 1, True, "live", True, (0, 2)),
        ],
    ),
    (2 * S, Loaded(3, 0, 1, False), []),
    (3 * S, Ran(0, 0, 1, ()), [ACTIVATIONS]),
    (4 * S, Sent(1, 3_000_000, ""), [Run(1, 0, ((5, 0, 10),), False, 1, True, "last", True, (2, 3))]),
    (5 * S, Loaded(3, 0, 4, True), []),
    (6 * S, Ran(1, 0, 1, ()), [KV, SwitchRole(1, "decode", "few prompts"), DECODES]),
    (7 * S, Sent(0, 3_000_000, ""), [JoinBatch(1, (5, 6), "their KV has come")]),
    (8 * S, Ran(1, 0, 6, (5,), True, -1, (2,)), [COPY]),
    (9 * S, Ran(1, 0, 3, ()), [ReleaseGpus(1, "empty"), StopLoad(4, "over"), StopSend(0, "late")]),
]  # fmt: skip


def test_a_request_that_runs_on_two_instances_and_is_handed_over() -> None:
    assert_told("a_request_that_runs_on_two_instances_and_is_handed_over", of_one(journal_of(LIFE), 5)[1:])


def test_an_instance_that_loads_while_it_serves_turns_and_goes() -> None:
    assert_told("an_instance_that_loads_while_it_serves_turns_and_goes", of_replica(journal_of(LIFE), 1))


def test_loads_and_transfers_that_stop() -> None:
    load = Load(3, "m", (("remote", 0),), (("replica", 1),), (), False, False, "backlog")
    journal = journal_of(
        [
            (0, arrival(5, 4), [load, KV]),
            (S, arrival(6, 4), [StopLoad(3, "host lost"), StopSend(0, "late")]),
            (2 * S, LoadStopped(3, 0, 2, "asked to"), []),
            (3 * S, Sent(0, 1000, "asked to"), []),
        ]
    )
    assert_told("loads_and_transfers_that_stop", of_replica(journal, 1)[-4:])
    assert of_one(journal, 5)[2:4] == [
        (1.0, "the transfer of its KV is to stop", "late"),
        (3.0, "its KV stopped after 1 kB", "asked to"),
    ]


# --- reading ---


def test_a_story_reads_one_line_at_a_time_and_no_further_than_it_must() -> None:
    text = recorded(*CHUNKED)
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        for one in text:
            read += 1
            yield f"{one}\n"

    story = request_story(JournalReader(lines(), "journal").moments(), RequestRecord(id=0))
    next(story)
    assert read == 2, "the header and the line of its arrival"
    assert len(list(story)) == 7 and read == len(text) - 1, "not the footer: the request is over"


def test_the_books_keep_only_who_is_in_flight() -> None:
    kept, most = ClusterState(), 0
    for now_ns, event, actions in moments(recorded(*CROWDED)):
        kept.happens(now_ns, event)
        for action in actions:
            kept.follows(now_ns, action)
        most = max(most, len(kept.requests))
    assert most == 3 and set(kept.requests) == {2}, "only who was never reported"


def test_an_action_that_is_none_is_refused_with_its_line() -> None:
    text = recorded(*CHUNKED)
    text[2] = text[2].replace('"run"', '"fly"')
    with pytest.raises(UserError, match="line 3 is cut or altered"):
        of_one(text, 0)


def test_words_for_numbers() -> None:
    assert [size(n) for n in (1, 999, 1000, 2_500_000, 7 * 10**9)] == [
        "1 byte",
        "999 bytes",
        "1 kB",
        "2.5 MB",
        "7 GB",
    ]
    assert seconds(1_234_567_890) == "1.234568 s"
    view = overview_of(moments(recorded(*CROWDED)))
    assert view.sentence({"source": "real", "seed": 7}) == (
        "A real run with seed 7: 10 events in 7.000000 s; 3 requests (2 finished, 0 rejected, 0 failed, 1 "
        "still in flight), 1 preemption; instances named: 2."
    )


# --- whole runs, and the command ---

RUNS = {
    "static": ("trace=azure_conv_like", "trace.requests=30", "trace.utilization=2", "cluster=a100_x2",
               "engine.kv_tokens=8192", "engine.max_new_tokens=1024", "engine.front_end=none"),
    "split": ("system=distserve_half", "trace=burstgpt_like", "trace.requests=40", "cluster=blitz_b"),
    "live": ("system=blitzscale", "trace=burstgpt_like", "trace.requests=70", "cluster=blitz_b"),
}  # fmt: skip


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("story") / request.param
    assert cli.run(["simulate", *RUNS[request.param], "journal=true", f"out={folder}"]) == 0
    return folder


def shown(capsys: Captured, *words: str) -> list[str]:
    capsys.readouterr()
    assert cli.run(["story", *words]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    return told.out.splitlines()


def test_stories_agree_with_requests_parquet(run: Path) -> None:
    """Tokens, finish and instance of every request, of which the journal has only steps and finishes."""
    table = pq.read_table(run / "requests.parquet").to_pydict()
    wanted = zip(table["finish_ns"], table["replica"], table["output_tokens"], table["preemptions"])
    for request, (finish_ns, replica, output_tokens, preemptions) in zip(
        table["request"], wanted, strict=True
    ):
        with (run / "journal").open() as file:
            told = list(request_story(JournalReader(file, "journal").moments(), RequestRecord(id=request)))
        noun = "token" if output_tokens == 1 else "tokens"
        assert told[-2].what == f"finishes on instance {replica} with {output_tokens:,} {noun}"
        assert told[-1].now_ns == finish_ns == max(one.now_ns for one in told)
        assert [one.now_ns for one in told] == sorted(one.now_ns for one in told)
        assert sum("is preempted" in one.what for one in told) == preemptions
        e2e_s = (finish_ns - table["arrival_ns"][request]) / S
        assert told[-1].what.startswith(f"in all {e2e_s:.6f} s: ")


def test_the_command_tells_what_to_ask_and_then_tells_it(run: Path, capsys: Captured) -> None:
    overview = shown(capsys, str(run))
    asked = [row.split()[1:4] for row in overview if row.startswith("  servetwin story ")]
    assert {words[2].partition("=")[0] for words in asked} == {"request", "instance"}
    for words in asked:
        rows = shown(capsys, *words[1:])
        assert rows[0].split() == ["time", "s", "what", "why"] and max(map(len, rows)) <= 110
        as_json = [json.loads(row) for row in shown(capsys, *words[1:], "json=true")]
        assert [set(one) for one in as_json] == [{"time_ns", "what", "why"}] * len(as_json)
        times = [row[:13].strip() for row in rows[1:] if row[:13].strip()]
        assert times == [f"{one['time_ns'] / S:.6f}" for one in as_json]


def test_the_page_shows_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Every command on the page, one after the other, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(
        r"```\n(.*?)```", (ROOT / "docs" / "how-to" / "STORY.md").read_text(encoding="utf-8"), re.DOTALL
    )
    compared = 0
    for block in blocks:
        command, _, output = block.replace("\\\n", "").partition("\n")
        words = shlex.split(command)
        assert words[:1] == ["servetwin"]
        capsys.readouterr()
        assert cli.run(words[1:]) == 0
        if output:
            compared += 1
            assert capsys.readouterr().out == output, f"put what this prints on the page: {command}"
    assert compared >= 3


def test_live_layers_and_drains_are_told(tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "live"
    assert cli.run(["simulate", *RUNS["live"], "journal=true", f"out={folder}"]) == 0
    events = json.loads((folder / "summary.json").read_text())["scale_events"]
    drained = next(one["replica"] for one in events if one["act"] == "drain")
    whats = [
        json.loads(row)["what"] for row in shown(capsys, str(folder), f"instance={drained}", "json=true")
    ]
    order = (
        "is placed on",
        "load ",
        "is fully loaded",
        "begins to serve",
        "takes nothing new",
        "is reclaimed",
    )
    found = [next(n for n, what in enumerate(whats) if what.startswith(begin)) for begin in order]
    assert found == sorted(found)


def written(folder: Path, text: list[str], end: str = "\n") -> Path:
    folder.mkdir()
    (folder / "journal").write_text("\n".join(text) + end)
    return folder


@pytest.mark.parametrize(
    ("left", "end", "where"), [(5, "\n", "ends behind line 5"), (6, "", "breaks off in line 6")]
)
def test_a_cut_journal_is_told_up_to_the_cut(
    tmp_path: Path, capsys: Captured, left: int, end: str, where: str
) -> None:
    text = recorded(*CHUNKED)[:left]
    if not end:
        text[-1] = text[-1][:-9]
    rows = shown(capsys, str(written(tmp_path / "cut", text, end)), "request=0", "json=true")
    told = [json.loads(row) for row in rows]
    assert [one["what"] for one in told[-4:-1]] == [
        "decoded 2 tokens after 0.500000 s, one a step, alone (1 report)",
        "the journal ends; so far the request has 3 tokens and is decoding on instance 0",
        "in all 1.500000 s: waiting 0.000000 s, prompt 0.500000 s, prompt and first decode steps 1.000000 s, "
        "decoding 0.000000 s",
    ]
    assert where in told[-1]["remark"] and told[-1]["remark"].endswith("only the lines before are told")


REFUSED = {
    "request=9": "no request 9 is in the journal of",
    "instance=9": "no instance 9 is in the journal of",
    "requst=1": "write request=VALUE if that is meant",
    "request=one": "request wants an integer",
    "3": "write request=N or instance=N behind the folder",
    "json=maybe": "json wants true or false",
}


@pytest.mark.parametrize(("word", "sentence"), REFUSED.items())
def test_what_cannot_be_told_is_refused(tmp_path: Path, capsys: Captured, word: str, sentence: str) -> None:
    folder = written(tmp_path / "run", recorded(*CHUNKED))
    assert cli.run(["story", str(folder), word]) == 2
    told = capsys.readouterr()
    assert told.out == "" and sentence in told.err and told.err.count("\n") == 1


def test_flags_and_keys_stand_before_the_command_and_the_folder_too(run: Path, capsys: Captured) -> None:
    expected = shown(capsys, str(run), "request=0", "json=true")
    folder = str(run)
    for words in (
        ("--json", "story", folder, "request=0"),
        ("story", "--json", folder, "request=0"),
        ("story", "--json", "request=0", folder),
        ("story", "request=0", folder, "--json"),
        ("-v", "--json", "story", folder, "request=0"),
    ):
        assert cli.run(words) == 0
        assert capsys.readouterr().out.splitlines() == expected
    assert cli.run(["--json"]) == 2 and "there is no command" in capsys.readouterr().err


def test_folders_without_a_journal_are_refused(tmp_path: Path, capsys: Captured) -> None:
    both = str(written(tmp_path / "run", recorded(*CHUNKED))), "request=0", "instance=0"
    cases = {
        (): "story takes one folder",
        ("request=3",): "story takes one folder",
        (str(tmp_path / "nowhere"),): "is not a folder: write servetwin story DIR",
        (str(tmp_path),): "has no journal: run again with journal=true",
        both: "write one of them",
    }
    for words, sentence in cases.items():
        assert cli.run(["story", *words]) == 2
        assert sentence in capsys.readouterr().err


def test_lines_that_were_altered_are_said(tmp_path: Path, capsys: Captured) -> None:
    text = recorded(*CHUNKED)
    text[1] = text[1].replace("0 outstanding", "my favourite")
    rows = shown(capsys, str(written(tmp_path / "run", text)), "instance=0", "json=true")
    assert "are not those that were written" in json.loads(rows[-1])["remark"]


@pytest.mark.parametrize(
    ("old", "new"),
    [("0,8,14", '0,"x",14'), ('"ran",0,0,1', '"ran",0,0,[1]'), ("[0,0,8]", "[0,0]"), ("[[0,0,8]]", "7")],
)
def test_a_line_that_makes_no_sense_is_refused_with_its_number(
    tmp_path: Path, capsys: Captured, old: str, new: str
) -> None:
    text = recorded(*CROWDED)
    altered = next(number for number, one in enumerate(text) if old in one)
    text[altered] = text[altered].replace(old, new)
    folder = str(written(tmp_path / "run", text))
    capsys.readouterr()
    assert cli.run(["story", folder, "request=0"]) == 2
    refused = capsys.readouterr().err
    assert f"line {altered + 1} is cut or altered" in refused and refused.count("\n") == 1


def test_an_instance_of_some_layers_and_what_is_sent_of_them() -> None:
    stage: list[tuple[int, Event, list[Action]]] = [
        (
            1 * S,
            arrival(5, 10),
            [
                AllocateGpus(1, "m", (4,), "both", False, "stage", (8, 16)),
                Load(3, "m", (("ssd", 0),), (("replica", 1),), (), True, False, "stage", False, (8, 16)),
            ],
        ),
        (2 * S, Loaded(3, 0, 1, False, 8), []),
        (3 * S, Loaded(3, 0, 8, True, 8), [Run(1, 0, ((5, 0, 10),), False, 1, True, "live", True, (8, 16))]),
        (4 * S, Ran(1, 0, 1, ()), [Send(0, "kv", (6, 5), 1, 0, 10**6, "room", (8, 16), ((0, 4), (0, 10)))]),
    ]
    assert_told("an_instance_of_some_layers_and_what_is_sent_of_them", of_replica(journal_of(stage), 1)[:4])
    sent = "its KV of layers 8 to 15, tokens 1 to 10 (1 MB, with that of 6) is sent from instance 1 to 0"
    assert (4.0, sent, "room") in of_one(journal_of(stage), 5)
