"""Traces as other tools write them: rate, lengths, shared prefixes and labels, or one sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds.refusals import refuses
from traces.description import describe
from traces.errors import TraceError
from traces.formats import format_of
from traces.load import load
from traces.sharing import shared_tokens
from traces.workload import Workload

EPOCH_MS = 1_780_000_000_000


def written(folder: Path, text: str, name: str = "trace") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def read(folder: Path, text: str, **options: Any) -> Workload:
    return load("file", path=written(folder, text), **options)


def shape(workload: Workload) -> tuple[list[float], list[int], list[int]]:
    """Arrivals in s, prompts, outputs."""
    arrivals = [at / 1e9 for at in workload.arrival_ns.tolist()]
    return arrivals, workload.prompt_tokens.tolist(), workload.output_tokens.tolist()


def blocks(times: list[Any], ids: list[list[int]], **more: Any) -> str:
    rows = [
        {"timestamp": at, "input_length": 512 * len(one), "output_length": 9, "hash_ids": one, **more}
        for at, one in zip(times, ids, strict=True)
    ]
    return lines(*rows)


VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,700,40\n2,300,20\n"
SPLITWISE = (
    "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
    "0,2,0,0,1,700,40\n1,2,0,2,1,300,20\n"
)
LITELLM = (
    "startTime,endTime,model,prompt_tokens,completion_tokens\n"
    "2026-01-01T00:00:00.5Z,2026-01-01T00:00:02Z,m,700,40\n2026-01-01T00:00:02.5Z,,m,300,20\n"
)
EPOCH_S = EPOCH_MS // 1000
PAIR = ((0, 700, 40), (2, 300, 20))  # s, prompt, output


def table(header: str, first: object, second: object) -> str:
    return f"{header}\n{first},700,40\n{second},300,20\n"


TABLES = {
    "Vidur": (VIDUR, ()),
    "Splitwise": (SPLITWISE, ("columns not read: 'request_id', ",)),
    "LiteLLM": (LITELLM, ("columns not read: 'endTime'", "times as dates, counted from the first")),
    "GuideLLM columns": ("timestamp,input_length,output_length\n0.0,700,40\n2.0,300,20\n", ("times in",)),
    "dates without zone": (
        table("ts,input_tokens,output_tokens", "2026-01-01 00:00:00", "2026-01-01 00:00:02"),
        ("times as dates",),
    ),
    "epoch s": (
        table("created,ContextTokens,GeneratedTokens", EPOCH_S, EPOCH_S + 2), ("times in s, counted",)
    ),
    "epoch ms": (
        table("time,Prompt Tokens,Completion Tokens", EPOCH_MS, EPOCH_MS + 2000), ("times in ms, counted",)
    ),
    "epoch us": (table("ts,isl,osl", f"{EPOCH_S}000000", f"{EPOCH_S + 2}000000"), ("times in us, counted",)),
    "epoch ns": (table("ts,isl,osl", f"{EPOCH_S}{0:09}", f"{EPOCH_S + 2}{0:09}"), ("times in ns, counted",)),
    "unit in the name": ("arrival_time_ms,input_len,output_len\n0,700,40\n2000,300,20\n", ()),
    "OpenTelemetry": (
        lines(*({"startTimeUnixNano": (EPOCH_S + at) * 10**9, "gen_ai.usage.input_tokens": prompt,
                 "gen_ai.usage.output_tokens": output} for at, prompt, output in PAIR)),
        ("counted from the first",),
    ),
    "nested usage": (
        lines(*({"created": EPOCH_S + at, "usage": {"prompt_tokens": prompt, "completion_tokens": output}}
                for at, prompt, output in PAIR)),
        ("times in s, counted",),
    ),
    "an array": (
        json.dumps([{"startTime": "2026-01-01T00:00:00Z", "prompt_tokens": 700, "completion_tokens": 40},
                    {"startTime": "2026-01-01T00:00:02Z", "prompt_tokens": 300, "completion_tokens": 20}]),
        ("times as dates",),
    ),
    "Baseten": (
        lines(*({"timestamp_start_unix_ms": (EPOCH_S + at) * 1000, "prompt": "x", "input_tokens": prompt,
                 "output_tokens": output, "total_hashes": [1, 2], "provided_session_id": 4}
                for at, prompt, output in PAIR)),
        ("total_hashes not read: write the size of its blocks as trace.block_tokens=",),
    ),
    "AIBrix": (
        lines(*({"timestamp": at * 1000, "requests": [
            {"prompt": "a", "prompt_length": prompt, "output_length": output, "session_id": None}]}
            for at, prompt, output in PAIR)),
        (),
    ),
    "Weka": (
        lines({"id": "c", "models": ["m"], "block_size": 64, "requests": [
            {"t": 0.0, "type": "s", "in": 700, "out": 40, "hash_ids": list(range(10))},
            {"t": 2.0, "type": "n", "in": 300, "out": 20, "hash_ids": [0, 1, 2, 3]}]}),
        (),
    ),
    "AIPerf's records": (
        lines(*({"metadata": {"request_start_ns": (EPOCH_S + at) * 10**9, "conversation_id": "c"},
                 "metrics": {"input_sequence_length": {"value": prompt, "unit": "tokens"},
                             "output_sequence_length": {"value": output, "unit": "tokens"},
                             "output_token_count": {"value": 1, "unit": "tokens"}}}
                for at, prompt, output in PAIR)),
        ("times in ns, counted",),
    ),
    "inference-perf": (
        json.dumps([{"start_time": at + 0.0, "end_time": 9.5, "request": "",
                     "info": {"input_tokens": prompt, "output_tokens": output, "output_token_times": [1.5]}}
                    for at, prompt, output in PAIR]),
        ("times in",),
    ),
    "a database's dates": (
        table("created_at,isl,osl", "2026-01-01 02:00:00.5+02", "2026-01-01 00:00:02.5+0000"),
        ("times as dates",),
    ),
    "vllm bench serve": (
        json.dumps({"date": "d", "request_rate": "inf", "input_lens": [700, 300], "output_lens": [40, 20],
                    "start_times": [5.25, 7.25], "ttfts": [0.1, 0.1], "errors": ["", ""]}),
        ("times count from the first request",),
    ),
    "GuideLLM": (
        json.dumps({"metadata": {}, "benchmarks": [{"requests": {
            "successful": [
                {"request_start_time": 1780000000.25, "prompt_tokens": 700, "output_tokens": 40},
                {"request_start_time": 1780000002.25, "prompt_tokens": 300, "output_tokens": 20}],
            "errored": [{}], "incomplete": []}}]}, indent=1),
        ("1 requests that failed or did not end are not read",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("tool", TABLES)
def test_two_requests_two_seconds_apart_are_read_from_every_tool(tmp_path: Path, tool: str) -> None:
    text, labels = TABLES[tool]
    workload = read(tmp_path, text)
    assert shape(workload) == ([0, 2], [700, 300], [40, 20])
    for label in labels:
        assert any(label in one for one in workload.labels), workload.labels


def test_bailian_is_in_seconds_with_blocks_of_16(tmp_path: Path) -> None:
    rows = [
        {"chat_id": 500 + at, "parent_chat_id": 499 + at, "timestamp": 11.5 + at * 0.96, "input_length": 40,
         "output_length": 9, "type": "text", "turn": 1, "hash_ids": [0, 1, 90 + at]}
        for at in range(27)
    ]  # fmt: skip
    found = describe(read(tmp_path, lines(*rows)))
    assert found.mean_rate_per_s == pytest.approx(1.0417, abs=1e-4)
    workload = read(tmp_path, lines(*rows))
    assert shared_tokens(workload).tolist() == [0] + [32] * 26
    assert workload.session is not None and workload.session.counts() == {"500": 27}  # each continues another
    alone = read(tmp_path, lines(*({**row, "parent_chat_id": -1} for row in rows)))
    assert alone.session is not None and len(alone.session.counts()) == 27


def test_mooncakes_keys_in_seconds_and_milliseconds_have_their_rates(tmp_path: Path) -> None:
    seconds = blocks([0.0, 0.25, 0.75, 60.5], [[0, 1], [0, 2], [3], [4]])
    found = read(tmp_path, seconds)
    assert describe(found).mean_rate_per_s == pytest.approx(0.0496, abs=1e-4)
    assert shared_tokens(found).tolist() == [0, 512, 0, 0]
    bench = lines(*({"timestamp": at, "prompt_len": 300, "output_len": 50} for at in (0, 1500, 3000)))
    assert shape(read(tmp_path, bench))[0] == [0, 1.5, 3]
    epoch = lines(*({"timestamp": 1780000000 + at, "prompt_len": 3, "output_len": 5} for at in (0.5, 1.25)))
    assert shape(read(tmp_path, epoch))[0] == [0, 0.75]


def test_block_ids_are_opaque_up_to_64_bits(tmp_path: Path) -> None:
    large = 2**64 - 1
    workload = read(tmp_path, blocks([0, 10, 20], [[7, 9], [7, 2**63 + 3], [large]]))
    assert shared_tokens(workload).tolist() == [0, 512, 0]
    assert len(set(workload.prefix[1])) == 2  # type: ignore[index]
    table = f"ts,isl,osl,prefix_512\n0.5,1024,3,7 {large}\n1.5,1024,3,7 9\n2.5,1024,3,7 {large}\n"
    assert shared_tokens(read(tmp_path, table)).tolist() == [0, 512, 1024]
    refuses(
        TraceError, f"is more than {large}", read, tmp_path, table.replace(f"7 {large}", f"7 {large + 1}")
    )
    same = read(tmp_path, blocks([0, 10], [[large, 5], [large, 6]]))
    assert shared_tokens(same).tolist() == [0, 512]
    refuses(TraceError, f"write whole numbers from 0 to {large}", read, tmp_path, blocks([0], [[large + 1]]))


def test_turns_of_aiperf_follow_by_their_delay(tmp_path: Path) -> None:
    text = lines(
        {"session_id": "a", "timestamp": 0, "input_length": 600, "output_length": 20},
        {"session_id": "a", "delay": 1500, "input_length": 900, "output_length": 30},
        {"session_id": "a", "delay": 500, "input_length": 950, "output_length": 30},
        {"session_id": "b", "timestamp": 250, "input_length": 200, "output_length": 10},
    )
    workload = read(tmp_path, text)
    assert shape(workload)[:2] == ([0, 0.25, 1.5, 2], [600, 200, 900, 950])
    assert workload.session is not None and workload.session.tolist() == ["a", "b", "a", "a"]
    assert any("2 of 4 requests arrive their delay after" in label for label in workload.labels)


def test_text_is_measured_only_by_a_rule_that_the_user_names(tmp_path: Path) -> None:
    text = lines(*({"timestamp": at, "text_input": "eight ch", "output_length": 9} for at in (0, 500)))
    refuses(TraceError, "key text_input: .*write trace.chars_per_token=4", read, tmp_path, text)
    workload = read(tmp_path, text, chars_per_token=4.0)
    assert shape(workload) == ([0, 0.5], [2, 2], [9, 9])
    assert any("estimated at 4 characters per token" in label for label in workload.labels)


def test_a_batch_has_neither_arrivals_nor_lengths(tmp_path: Path) -> None:
    content: list[Any] = [{"type": "text", "text": "four"}]
    bodies = [
        {"model": "m", "messages": [{"role": "user", "content": "eight ch"}], "max_tokens": 50},
        {"model": "m", "messages": [{"role": "user", "content": content}], "max_completion_tokens": 60},
        {"model": "m", "prompt": "four", "max_tokens": 70},
    ]
    text = lines(
        *({"custom_id": str(n), "method": "POST", "url": "/v1", "body": b} for n, b in enumerate(bodies))
    )
    both = "rate_per_s= .* and trace.chars_per_token=4"
    refuses(TraceError, both, read, tmp_path, text)
    workload = read(tmp_path, text, rate_per_s=2.0, chars_per_token=4.0)
    assert shape(workload)[1:] == ([2, 1, 1], [50, 60, 70])
    assert workload.model is not None and workload.model.counts() == {"m": 3}


def test_mooncake_rows_without_times_or_outputs(tmp_path: Path) -> None:
    timeless = lines(*({"input_length": 600, "output_length": 5, "hash_ids": [0, n]} for n in (1, 2)))
    refuses(TraceError, "has no arrivals: write trace.rate_per_s=", read, tmp_path, timeless)
    drawn = read(tmp_path, timeless, rate_per_s=2.0)
    assert drawn.prompt_tokens.tolist() == [600, 600] and "drawn at 2/s" in drawn.labels[-1]
    timed = lines({"timestamp": 0, "input_length": 600, "output_length": 5})
    refuses(
        TraceError, "arrivals of its own: leave out trace.rate_per_s", read, tmp_path, timed, rate_per_s=2.0
    )
    refuses(TraceError, "line 1, key output_length: the value is missing", read, tmp_path,
            lines({"timestamp": 0, "input_length": 600}))  # fmt: skip


def test_wekas_subagents_and_local_ids(tmp_path: Path) -> None:
    turn = {"type": "s", "in": 128, "out": 5, "hash_ids": [1, 2]}
    agent = {"type": "subagent", "t": 10.0, "requests": [{**turn, "t": 1.0}, {**turn, "t": 14.0}]}
    talk = {"id": "c", "block_size": 64, "hash_id_scope": "local", "requests": [{**turn, "t": 0.0}, agent]}
    workload = read(tmp_path, lines(talk, {**talk, "id": "d"}))
    assert shape(workload)[0] == [0, 0, 11, 11, 14, 14]
    assert shared_tokens(workload).tolist() == [0, 0, 128, 128, 128, 128]
    assert workload.labels[0] == "2 conversations begin together, each at its own time 0"
    shared = [{**one, "hash_id_scope": "global"} for one in (talk, {**talk, "id": "d"})]
    assert shared_tokens(read(tmp_path, lines(*shared))).tolist() == [0, 128, 128, 128, 128, 128]
    deep: dict[str, Any] = {**agent, "requests": []}
    for _ in range(40):
        deep = {**agent, "requests": [deep]}
    refuses(TraceError, "nested over 16 deep", read, tmp_path, lines({**talk, "requests": [deep]}))
    pretty = json.dumps(talk, indent=1)
    assert len(read(tmp_path, pretty)) == 3


def test_a_vllm_result_without_start_times_is_drawn_at_its_rate(tmp_path: Path) -> None:
    result: dict[str, Any] = {"input_lens": [7] * 50, "output_lens": [5] * 49 + [0], "request_rate": 4.0}
    workload = read(tmp_path, json.dumps(result))
    assert len(workload) == 49 and workload.labels[0] == "arrivals drawn at the file's request_rate"
    assert read(tmp_path, json.dumps(result), rate_per_s=8.0).labels[-1].endswith("drawn at 8/s")
    result["request_rate"] = "inf"
    refuses(TraceError, "has no arrivals: write trace.rate_per_s=", read, tmp_path, json.dumps(result))
    summary = {"duration": 5, "total_input_tokens": 7, "request_throughput": 2.5}
    refuses(TraceError, "input_lens is missing: .*--save-detailed", read, tmp_path, json.dumps(summary))
    result["output_lens"] = [5]
    refuses(TraceError, "input_lens 50, output_lens 1", read, tmp_path, json.dumps(result), rate_per_s=1.0)
    refuses(TraceError, "input_lens is missing: .*--save-detailed", read, tmp_path,
            json.dumps({"input_lens": None, "output_lens": []}))  # fmt: skip


def test_baseten_blocks_are_read_with_their_size(tmp_path: Path) -> None:
    rows = [
        {
            "timestamp_start_unix_ms": EPOCH_MS + n,
            "input_tokens": 900,
            "output_tokens": 5,
            "total_hashes": [1, n],
        }
        for n in (2, 3)
    ]
    named = read(tmp_path, lines(*rows), block_tokens=512)
    written_down = read(tmp_path, lines(*({**row, "block_size": 512} for row in rows)))
    mapped = read(tmp_path, lines(*rows), columns="[prefix_512:total_hashes]")
    for workload in (named, written_down, mapped):
        assert shared_tokens(workload).tolist() == [0, 512]


LOG = "ts,prompt_tokens,completion_tokens\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("when,in,out\n0,1,2\n", "header is 'when', 'in', 'out'.*csv, also needs arrival, prompt_tokens"),
        ("when,prompt_tokens,out\n0,1,2\n", r"trace.columns=\[arrival:THEIRS,output_tokens:THEIRS\]"),
        ("ts;prompt_tokens;output_tokens\n", "separate its columns by commas, not by ';'"),
        (lines({"timestamp": 0, "osl": 3}), "keys are 'timestamp', 'osl'.*jsonl, also needs prompt_tokens"),
        ("prompt_tokens,completion_tokens\n1,2\n", "no column for arrival .its columns are 'prompt_tokens'"),
        ("ts,time,prompt_tokens,output_tokens\n0,0,1,2\n", "'ts' and 'time' may both be arrival"),
        (LOG + "0,nan,2\n", "line 2, column prompt_tokens: the value is missing"),
        (LOG + "0,-1,2\n", "line 2, column prompt_tokens: '-1' is negative"),
        (LOG + "-0.5,1,2\n", "line 2, column ts: '-0.5'"),
        (LOG + ",1,2\n", "line 2, column ts: the value is missing"),
        (LOG + "", "has a header and no requests"),
        (LOG + "0,0,2\n", "every request is left out .1 rows: zero prompt tokens"),
        (lines({"ts": 0.5, "prompt_tokens": 3, "osl": None}), "key osl: the value is missing"),
        (lines({"ts": 0.5, "isl": 2.5, "osl": 1}), "key isl: 2.5 is not a whole number"),
    ],
)  # fmt: skip
def test_a_refusal_names_what_is_missing(tmp_path: Path, text: str, sentence: str) -> None:
    refuses(TraceError, sentence, read, tmp_path, text)


@pytest.mark.parametrize(
    ("times", "found"),
    [
        (("0.0", "0.5", "60"), ([0, 0.5, 60], "times in s (some have fractions)")),
        (("0", "1", "3"), ([0, 1, 3], "times in s (as that, 0.667 requests arrive per second)")),
        (("0", "1500", "3000"), ([0, 1.5, 3], "times in ms (as that, 0.667 requests arrive per second)")),
        (("0", "1500000", "3000000"), ([0, 1.5, 3], "times in us")),
        (("0", "1500000000", "3000000000"), ([0, 1.5, 3], "times in ns")),
        (("0", "0", "0"), ([0, 0, 0], "times in s (all are the same)")),
        (
            ("0", "20", "40"),
            "trace, (column|key) ts: the times may be in s or ms .*write trace.time_unit=s, or",
        ),
        (("0.5", "200", "400.5"), "may be in s or ms"),
    ],
)
def test_a_unit_that_nobody_states_is_told_by_the_values_or_refused(
    tmp_path: Path, times: tuple[str, ...], found: Any
) -> None:
    text = "ts,input_tokens,output_tokens\n" + "".join(f"{at},3,4\n" for at in times)
    rows = "".join(f'{{"ts": {at}, "isl": 3, "osl": 4}}\n' for at in times)
    for one in (text, rows):
        if isinstance(found, str):
            refuses(TraceError, found, read, tmp_path, one)
            assert shape(read(tmp_path, one, time_unit="ms"))[0] == [float(at) / 1000 for at in times]
        else:
            workload = read(tmp_path, one)
            assert shape(workload)[0] == found[0]
            assert any(found[1] in label for label in workload.labels), workload.labels


def test_an_unordered_log_is_sorted_with_a_label(tmp_path: Path) -> None:
    workload = read(tmp_path, "ts,isl,osl\n2.5,1,9\n0.5,2,8\n1.5,3,7\n")
    assert shape(workload) == ([0.5, 1.5, 2.5], [2, 3, 1], [8, 7, 9])
    assert "rows sorted by arrival: 1 arrived before the row above" in workload.labels


def test_every_known_table_is_told(tmp_path: Path) -> None:
    found = {tool: format_of(written(tmp_path, text)).name for tool, (text, _) in TABLES.items()}
    special = {"AIBrix": "aibrix", "Weka": "weka", "vllm bench serve": "vllm_result", "GuideLLM": "guidellm"}
    plain = {
        tool: "csv" if not text.startswith(("{", "[")) else "jsonl" for tool, (text, _) in TABLES.items()
    }
    assert found == plain | special


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("TIMESTAMP,ContextTokens,GeneratedTokens", "2026-01-01 00:00:00,7,5"),
        ("Timestamp,Model,Request tokens,Response tokens", "5,m,7,5"),
        ("request_id,timestamp,input_tokens,output_tokens", "0,0.5,7,5"),
        ("arrival_time_ns,input_toks,output_toks", "5,7,5"),
    ],
)
def test_a_published_format_with_a_column_more_is_a_table(tmp_path: Path, header: str, row: str) -> None:
    path = written(tmp_path, f"{header},latency\n{row},1\n")
    assert format_of(path).name == "csv"
    workload = load("file", path=path)
    assert (workload.prompt_tokens.tolist(), workload.output_tokens.tolist()) == ([7], [5])
    assert any("columns not read: " in label and "'latency'" in label for label in workload.labels)


PIECES = [b"", b"null", b"-1", b"NaN", b"[]", b"{}", b'"', b",", b"\n", b"1e999", b"9" * 25, b"0.5", b"\xff"]
OPTIONS: list[dict[str, Any]] = [
    {}, {"rate_per_s": 2.0}, {"time_unit": "ms"}, {"time_unit": "iso"}, {"columns": "[arrival:ts]"},
    {"limit": 1},
]  # fmt: skip


@given(
    tool=st.sampled_from(sorted(TABLES)),
    edits=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 5), st.sampled_from(PIECES)), max_size=3),
    options=st.sampled_from(OPTIONS),
)
@settings(max_examples=100)
def test_damage_is_refused_in_one_sentence_or_read(
    tmp_path_factory: pytest.TempPathFactory,
    tool: str,
    edits: list[tuple[int, int, bytes]],
    options: dict[str, Any],
) -> None:
    data = TABLES[tool][0].encode()
    for place, cut, piece in edits:
        at = place % (len(data) + 1)
        data = data[:at] + piece + data[at + cut :]
    path = tmp_path_factory.mktemp("t") / "trace"
    path.write_bytes(data)
    try:
        workload = load("file", path=path, **options)
    except TraceError as error:
        assert "\n" not in str(error)
        return
    assert (workload.arrival_ns[1:] >= workload.arrival_ns[:-1]).all() and workload.prompt_tokens.min() > 0
