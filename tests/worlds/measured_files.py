"""Files of measured timings in every format, made from a simulated run whose times are made shorter."""

import csv
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from servetwin.compare.own_result import columns_of
from servetwin.compare.pairs import BY_LENGTHS

FASTER = 0.8  # what is "measured" takes so much of the simulated time: the simulation is 25 % too slow
ERROR = 1 / FASTER - 1
Row = dict[str, Any]


def rows_of(folder: Path) -> list[Row]:
    """The run's requests with shorter times, as a client that began at another time might have seen them."""
    columns = columns_of(folder / "requests.parquet")
    names = list(columns)
    rows = [
        dict(zip(names, values, strict=True)) for values in zip(*(columns[name].tolist() for name in names))
    ]
    for row in rows:
        waited_ms = (row["scheduled_ns"] - row["arrival_ns"]) / 1e6
        row |= {name: row[name] * FASTER for name in ("ttft_ms", "tpot_ms", "e2e_ms")}
        row |= {"arrival_s": row["arrival_ns"] / 1e9 + 1000, "queue_ms": waited_ms * FASTER}
        gap = (row["e2e_ms"] - row["ttft_ms"]) / max(1, row["output_tokens"] - 1)
        row["gaps_ms"] = [gap] * (row["output_tokens"] - 1)
    return rows


OWN = ("request", "arrival_s", "prompt_tokens", "output_tokens", "ttft_ms", "e2e_ms", "queue_ms")


def as_csv(path: Path, rows: list[Row], names: tuple[str, ...] = OWN) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def as_lines(path: Path, values: list[Any]) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def as_jsonl(path: Path, rows: list[Row]) -> Path:
    return as_lines(path, [{name: row[name] for name in OWN} | {"itl_ms": row["gaps_ms"]} for row in rows])


def as_llmservingsim(path: Path, rows: list[Row]) -> Path:
    """A line per finished request, in the order in which they finished."""
    values = [
        {
            "request_id": str(row["request"]),
            "input_toks": row["prompt_tokens"],
            "output_toks": row["output_tokens"],
            "arrival_time": 1.7e9 + row["arrival_s"],
            "queued_ts": row["arrival_s"],
            "scheduled_ts": row["arrival_s"] + row["queue_ms"] / 1e3,
            "first_token_ts": row["arrival_s"] + row["ttft_ms"] / 1e3,
            "last_token_ts": row["arrival_s"] + row["e2e_ms"] / 1e3,
        }
        for row in rows
    ]
    return as_lines(path, sorted(values, key=lambda value: value["last_token_ts"]))


def as_llmservingsim_csv(path: Path, rows: list[Row]) -> Path:
    values = [
        {
            "instance id": 0,
            "request id": row["request"],
            "model": "m",
            "input": row["prompt_tokens"],
            "output": row["prompt_tokens"] + row["output_tokens"],
            "arrival": round(row["arrival_s"] * 1e9),
            "end_time": round((row["arrival_s"] * 1e3 + row["e2e_ms"]) * 1e6),
            "latency": row["e2e_ms"] * 1e6,
            "queuing_delay": row["queue_ms"] * 1e6,
            "TTFT": row["ttft_ms"] * 1e6,
            "TPOT": row["tpot_ms"] * 1e6,
            "ITL": str([gap * 1e6 for gap in row["gaps_ms"]]),
        }
        for row in rows
    ]
    return as_csv(path, values, tuple(values[0]))


def as_aiperf(path: Path, rows: list[Row]) -> Path:
    def record(row: Row, phase: str = "profiling") -> Row:
        times = {
            "time_to_first_token": "ttft_ms",
            "inter_token_latency": "tpot_ms",
            "request_latency": "e2e_ms",
        }
        metrics = {
            name: {"value": row[key], "unit": "ms"} for name, key in times.items() if row[key] == row[key]
        }
        for name, key in (
            ("input_sequence_length", "prompt_tokens"),
            ("output_sequence_length", "output_tokens"),
        ):
            metrics[name] = {"value": row[key], "unit": "tokens"}
        metrics["inter_chunk_latency"] = {"value": row["gaps_ms"], "unit": "ms"}
        metrics["output_token_throughput_per_user"] = {"value": 1.0, "unit": "tokens/sec/user"}
        start_ns = round(row["arrival_s"] * 1e9)
        metadata = {"x_request_id": "7609a2e7", "request_start_ns": start_ns, "benchmark_phase": phase}
        return {"metadata": metadata, "metrics": metrics, "error": None}

    return as_lines(path, [record(rows[3], "warmup"), *(record(row) for row in reversed(rows))])


def bench_run(rows: list[Row]) -> Row:
    return {
        "date": "20261122",
        "request_rate": 8.0,
        "completed": len(rows),
        "input_lens": [row["prompt_tokens"] for row in rows],
        "output_lens": [row["output_tokens"] for row in rows],
        "ttfts": [row["ttft_ms"] / 1e3 for row in rows],
        "itls": [[gap / 1e3 for gap in row["gaps_ms"]] for row in rows],
        "start_times": [row["arrival_s"] for row in rows],
        "generated_texts": [""] * len(rows),
        "errors": [""] * len(rows),
        "p99_ttft_ms": 1.0,
    }


def as_vllm_bench(path: Path, rows: list[Row]) -> Path:
    path.write_text(json.dumps(bench_run(rows)))
    return path


def as_guidellm(path: Path, rows: list[Row]) -> Path:
    requests = [
        {
            "request_id": f"id-{row['request']}",
            "request_start_time": row["arrival_s"],
            "prompt_tokens": row["prompt_tokens"],
            "output_tokens": row["output_tokens"],
            "time_to_first_token_ms": row["ttft_ms"],
            "inter_token_latency_ms": row["tpot_ms"] if row["tpot_ms"] == row["tpot_ms"] else None,
            "request_latency": row["e2e_ms"] / 1e3,
        }
        for row in reversed(rows)
    ]
    run = {"requests": {"successful": requests, "incomplete": [], "errored": [], "total": None}}
    path.write_text(json.dumps({"args": {}, "benchmarks": [run]}))
    return path


def as_guidellm_yaml(path: Path, rows: list[Row]) -> Path:
    whole = json.loads(as_guidellm(path, rows).read_text())
    path.write_text(yaml.safe_dump(whole))
    return path


def as_sglang(path: Path, rows: list[Row]) -> Path:
    """As ``sglang.bench_serving --output-file FILE --output-details``: a line per run, without latencies."""
    run = bench_run(rows) | {"total_output_tokens_retokenized": 1, "request_rate": float("inf")}
    return as_lines(path, [run])


def as_vidur(path: Path, rows: list[Row]) -> Path:
    values = [
        {
            "Request Id": row["request"],
            "request_e2e_time": row["e2e_ms"] / 1e3,
            "request_scheduling_delay": row["queue_ms"] / 1e3,
            "prefill_e2e_time": row["ttft_ms"] / 1e3,
            "decode_time_execution_plus_preemption_normalized": 0.012,
            "request_num_prefill_tokens": row["prompt_tokens"],
            "request_num_decode_tokens": row["output_tokens"],
            "request_inter_arrival_delay": "" if not at else row["arrival_s"] - rows[at - 1]["arrival_s"],
        }
        for at, row in enumerate(rows)
    ]
    return as_csv(path, values[::-1], tuple(values[0]))


def as_llmperf(path: Path, rows: list[Row]) -> Path:
    """In the order in which the requests finished."""
    values = [
        {
            "error_code": None,
            "error_msg": "",
            "inter_token_latency_s": 0.012,
            "ttft_s": row["ttft_ms"] / 1e3,
            "end_to_end_latency_s": row["e2e_ms"] / 1e3,
            "number_total_tokens": row["prompt_tokens"] + row["output_tokens"],
            "number_output_tokens": row["output_tokens"],
            "number_input_tokens": row["prompt_tokens"],
        }
        for row in sorted(rows, key=lambda row: row["arrival_s"] + row["e2e_ms"] / 1e3)
    ]
    path.write_text(json.dumps(values))
    return path


def token_times_s(row: Row) -> list[float]:
    """When a client saw each token."""
    first_s = row["arrival_s"] + row["ttft_ms"] / 1e3
    return list(itertools.accumulate((gap / 1e3 for gap in row["gaps_ms"]), initial=first_s))


def as_inference_perf(path: Path, rows: list[Row]) -> Path:
    values = [
        {
            "start_time": row["arrival_s"],
            "end_time": row["arrival_s"] + row["e2e_ms"] / 1e3,
            "request": "",
            "response": "",
            "info": {
                "input_tokens": row["prompt_tokens"],
                "output_tokens": row["output_tokens"],
                "output_token_times": token_times_s(row),
            },
            "error": None,
        }
        for row in reversed(rows)
    ]
    path.write_text(json.dumps(values))
    return path


def as_genai_perf(path: Path, rows: list[Row]) -> Path:
    """A chat: an event of the role, one per token, one of the usage, and the end."""

    def request(row: Row) -> Row:
        times = token_times_s(row)
        usage = {"prompt_tokens": row["prompt_tokens"], "completion_tokens": row["output_tokens"]}
        events = [
            (row["arrival_s"] + 0.001, {"choices": [{"delta": {"role": "assistant", "content": ""}}]}),
            *((at, {"choices": [{"delta": {"content": "x"}}]}) for at in times),
            (times[-1] + 0.001, {"choices": [], "usage": usage}),
        ]
        return {
            "timestamp": round(row["arrival_s"] * 1e9),
            "request_inputs": {},
            "response_timestamps": [*(round(at * 1e9) for at, _ in events), round(times[-1] * 1e9) + 10**7],
            "response_outputs": [
                *({"response": f"data: {json.dumps(event)}"} for _, event in events),
                {"response": "data: [DONE]"},
            ],
        }

    run = {"experiment": {"mode": "request_rate", "value": 8}, "requests": list(map(request, rows))}
    path.write_text(json.dumps({"experiments": [run], "version": "1", "service_kind": "openai"}))
    return path


def as_genai_bench(path: Path, rows: list[Row], unit: str = "s") -> Path:
    """In the order in which the requests finished."""
    factor = 1.0 if unit == "ms" else 1e-3
    values = [
        {
            "error_code": None,
            "num_input_tokens": row["prompt_tokens"],
            "num_output_tokens": row["output_tokens"],
            "ttft": row["ttft_ms"] * factor,
            "tpot": row["tpot_ms"] * factor if row["tpot_ms"] == row["tpot_ms"] else None,
            "e2e_latency": row["e2e_ms"] * factor,
        }
        for row in sorted(rows, key=lambda row: row["arrival_s"] + row["e2e_ms"] / 1e3)
    ]
    path.write_text(
        json.dumps({"aggregated_metrics": {}, "individual_request_metrics": values, "_time_unit": unit})
    )
    return path


WRITERS: dict[str, tuple[Callable[[Path, list[Row]], Path], str]] = {
    "csv": (as_csv, "request number"),
    "jsonl": (as_jsonl, "request number"),
    "llmservingsim": (as_llmservingsim, "request number"),
    "llmservingsim_csv": (as_llmservingsim_csv, "request number"),
    "aiperf": (as_aiperf, "order of arrival"),
    "vllm_bench": (as_vllm_bench, "order of arrival"),
    "guidellm": (as_guidellm, "order of arrival"),
    "sglang": (as_sglang, "order of arrival"),
    "vidur": (as_vidur, "request number"),
    "inference_perf": (as_inference_perf, "order of arrival"),
    "genai_perf": (as_genai_perf, "order of arrival"),
    "llmperf": (as_llmperf, BY_LENGTHS),
    "genai_bench": (as_genai_bench, BY_LENGTHS),
}
