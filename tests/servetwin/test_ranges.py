"""A run at the ends of its step times' error: what the range holds, what it rests on, and what off leaves."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.step_times.engine_overhead import EngineOverhead, EngineStepModel
from hwmodels.step_times.step_error import NO_ERROR, all_off_by
from hwmodels.step_times.unequal_contexts import unequal_contexts
from servetwin.assemble.hardware import Hardware
from servetwin.assemble.step_band import at_end, band_of
from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.resolved import load_resolved, resolved_yaml
from servetwin.report.number_text import duration
from servetwin.report.range_text import range_head, range_text
from servetwin.results.ranges import METRICS, Answers, flips, ranges_of, value_of
from servetwin.run.ends import prepared_at_end, range_section
from servetwin.run.simulate import Prepared, execute, prepare, simulate
from serving.vocabulary.errors import UserError

WORDS = ("trace=azure_conv_like", "trace.requests=60", "trace.rate_per_s=12", "cluster=a100_x2")
ONE_AT_A_TIME = (
    "trace=azure_conv_like",
    "trace.requests=12",
    "trace.rate_per_s=0.02",
    "cluster=a100_x1",
)
NO_OVERHEAD = ("engine.overhead.step_s=0", "engine.overhead.per_layer_s=0")


def config(*words: str) -> Any:
    return load_config([*words, "out=unused"], "simulate")


def with_errors(prepared: Prepared, share: float | None, exact_overhead: bool = True) -> Prepared:
    """The same run, KV memory and unequal contexts known, steps off by that share; None: by nothing."""

    def changed(hardware: Hardware) -> Hardware:
        step = hardware.step
        assert isinstance(step, EngineStepModel)
        step.errors = NO_ERROR if share is None else all_off_by(share, "assumed", "made up")
        overhead = EngineOverhead(graph_batches=step.overhead.graph_batches, inside=exact_overhead)
        return replace(hardware, step=step, overhead=overhead, kv_ends=None, unequal=None)

    hardware = {model: changed(kind) for model, kind in prepared.hardware_of_model.items()}
    return replace(prepared, hardware_of_model=hardware)


def section(prepared: Prepared) -> tuple[Mapping[str, Any], dict[str, Any]]:
    summary = execute(prepared).summary
    return summary, range_section(prepared, summary, lambda end, place: execute(end).summary)


@pytest.mark.parametrize("words", [WORDS, ("system=serverlessllm", "cluster=blitz_b", "trace=burstgpt_like",
                                           "trace.limit=60", "trace.rate_scale=2")])  # fmt: skip
def test_the_range_of_every_number_holds_the_run_itself(words: tuple[str, ...]) -> None:
    summary, found = section(prepare(config(*words)))
    assert found["range"].keys() <= set(METRICS)
    assert {"ttft_ms.p99", "tpot_ms.mean", "slo.attainment", "throughput.req_per_s"} <= found["range"].keys()
    for metric, (low, high) in found["range"].items():
        value = value_of(summary, metric)
        assert value is not None
        assert low <= value <= high, metric
    low, high = found["range"]["ttft_ms.mean"]
    assert low < summary["ttft_ms"]["mean"] < high
    scales = "system=serverlessllm" in words
    assert ("the ends need not bound" in found["range_in_short"]) == scales


def test_kv_memory_is_at_its_kind_end_in_the_fast_run_and_at_the_other_in_the_slow_one() -> None:
    prepared = prepare(config(*WORDS))
    assert prepared.hardware.kv_ends is not None
    fewest, most = prepared.hardware.kv_ends
    assert fewest < prepared.hardware.kv_blocks < most
    for end, blocks in (("low", most), ("high", fewest)):
        ended = prepared_at_end(prepared, end)  # type: ignore[arg-type]
        assert [replica.kv_blocks for replica in ended.replicas] == [blocks] * len(prepared.replicas)
        assert [replica.gpus for replica in ended.replicas] == [replica.gpus for replica in prepared.replicas]
        assert ended.workload is prepared.workload and ended.estimates is prepared.estimates


@pytest.mark.parametrize(
    "words",
    [("engine.kv_tokens=200000",), ("engine.reserve_activation_bytes=3000000000",), ("engine=vllm_v0",)],
)
def test_memory_that_is_known_or_of_another_engine_has_no_range(words: tuple[str, ...]) -> None:
    prepared = prepare(config(*WORDS, *words))
    assert prepared.hardware.kv_ends is None and "KV memory" not in band_of(prepared.hardware).in_short()


def test_memory_alone_makes_a_range_where_it_bounds_the_run() -> None:
    """Exact step times, and memory for 4 to 40 requests at once."""
    bound = with_errors(prepare(config(*WORDS, *NO_OVERHEAD, "engine.kv_tokens=40000")), None)
    kinds = {name: replace(kind, kv_ends=(500, 5000)) for name, kind in bound.hardware_of_model.items()}
    summary, found = section(replace(bound, hardware_of_model=kinds))
    low, high = found["range"]["ttft_ms.mean"]
    assert low <= summary["ttft_ms"]["mean"] < high and "KV memory x0.18 to x1.82" in found["range_in_short"]


def test_unequal_contexts_alone_make_a_range() -> None:
    """Exact step times: an H100's kernel may let the longest of a wave decide, at most."""
    exact = with_errors(prepare(config(*WORDS, *NO_OVERHEAD, "engine.front_end=none")), None)
    unequal = unequal_contexts(load_gpu("h100"), load_llm("llama3_8b"), 1)
    kinds = {name: replace(kind, unequal=unequal) for name, kind in exact.hardware_of_model.items()}
    summary, found = section(replace(exact, hardware_of_model=kinds))
    low, high = found["range"]["tpot_ms.mean"]
    assert low == pytest.approx(summary["tpot_ms"]["mean"])
    assert high > 1.01 * low
    assert "as their total to as the longest of a wave (flash attention 3)" in found["range_in_short"]
    assert "flash_prepare_scheduler" in found["range_rests_on"]


def test_unequal_contexts_are_those_of_the_imitated_engine() -> None:
    assert prepare(config(*WORDS)).hardware.unequal is not None
    assert prepare(config(*WORDS, "engine=vllm_v0")).hardware.unequal is None


def test_without_error_the_three_are_one_and_no_end_is_run() -> None:
    prepared = with_errors(prepare(config(*WORDS, *NO_OVERHEAD, "engine.front_end=none")), None)

    def never(end: Prepared, place: int) -> Mapping[str, Any]:
        raise AssertionError("nothing to run")

    summary = execute(prepared).summary
    found = range_section(prepared, summary, never)["range"]
    assert all(low == high == value_of(summary, metric) for metric, (low, high) in found.items())


def test_all_step_times_longer_by_a_share_make_a_request_alone_longer_by_it() -> None:
    """One request at a time: its prompt and its steps are all there is, so a latency is a sum of steps."""
    share = 0.25
    words = (*ONE_AT_A_TIME, *NO_OVERHEAD, "engine.front_end=none")
    prepared = with_errors(prepare(config(*words)), share)
    summary, found = section(prepared)
    for metric in ("ttft_ms.mean", "ttft_ms.max", "tpot_ms.p50", "e2e_ms.mean"):
        value = value_of(summary, metric)
        assert value is not None
        assert found["range"][metric] == pytest.approx([value / (1 + share), value * (1 + share)], rel=1e-5)


def test_overhead_is_added_to_every_step_and_takes_its_own_factor() -> None:
    words = (*ONE_AT_A_TIME, "engine.overhead.step_s=0.004", "engine.overhead.per_layer_s=0")
    prepared = prepare(config(*words))
    kind = prepared.hardware
    assert isinstance(kind.step, EngineStepModel)
    kind.step.errors = NO_ERROR
    summary, found = section(prepared)
    low, high = found["range"]["tpot_ms.mean"]
    # 4 ms a step, from a half to twice; one request decodes alone, a token a step.
    assert low == pytest.approx(summary["tpot_ms"]["mean"] - 2.0, rel=1e-3)
    assert high == pytest.approx(summary["tpot_ms"]["mean"] + 4.0, rel=1e-3)


def test_off_leaves_every_file_as_it_is_without(tmp_path: Path) -> None:
    for name in ("on", "off"):
        simulate(config(*WORDS, f"uncertainty={name}"), _made(tmp_path / name))
    on, off = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("on", "off"))
    assert not [key for key in off if key.startswith("range")]
    assert "range_cpu_s" not in off["sim"]
    assert {key: on[key] for key in off if key != "sim"} == {key: off[key] for key in off if key != "sim"}
    requests = [(tmp_path / name / "requests.parquet").read_bytes() for name in ("on", "off")]
    assert requests[0] == requests[1]
    assert "uncertainty" not in (tmp_path / "off" / "config.yaml").read_text()
    shown, plain = ((tmp_path / name / "report.html").read_text() for name in ("on", "off"))
    assert shown.count("<td>lowest</td>") == shown.count("<td>highest</td>") == 4
    assert shown.count("<small>range ") == 4 + 6  # tiles and facts
    assert "What the range is and rests on" in shown
    assert not any(word in plain for word in ("lowest", "range ", "<small>range", ".far{"))
    assert load_resolved(tmp_path / "on" / "config.yaml").uncertainty == "on"
    assert load_resolved(tmp_path / "off" / "config.yaml").uncertainty == "off"


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_the_same_run_has_the_same_range() -> None:
    first, again = (section(prepare(config(*WORDS)))[1] for _ in range(2))
    assert first == again


def test_an_end_that_is_refused_is_told_and_the_run_stands() -> None:
    prepared = prepare(config(*WORDS))
    summary = execute(prepared).summary

    def refused(end: Prepared, place: int) -> Mapping[str, Any]:
        raise UserError("its queue is beyond the table: write a smaller rate")

    found = range_section(prepared, summary, refused)
    assert found["range"] == {}
    assert "low end was refused: its queue" in found["range_refused"]
    assert range_head({**summary, **found}).startswith("no range: the run at the low end was refused")


def test_policies_at_the_ends_know_what_the_model_says() -> None:
    prepared = prepare(config(*WORDS))
    kind = at_end(prepared.hardware_of_model, "high")["llama3_8b"]
    assert kind.rows.decode_cost(4, 4000) > prepared.hardware.rows.decode_cost(4, 4000)
    assert band_of(kind) == band_of(prepared.hardware)


def test_a_profile_that_was_forced_is_within_a_factor_of_two() -> None:
    prepared = prepare(config(*WORDS))
    use = type("Forced", (), {"forced": ("another GPU",)})()
    band = band_of(replace(prepared.hardware, profile=use, errors=None))
    assert (band.errors.decode.low, band.errors.decode.high) == (0.5, 2.0)


@pytest.mark.parametrize("word", ["maybe", "1", "null"])
def test_another_value_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["simulate", *WORDS, f"uncertainty={word}", "out=unused"]) == 2
    assert "uncertainty" in capsys.readouterr().err


def test_real_workers_have_no_step_times_that_are_off() -> None:
    with pytest.raises(UserError, match="uncertainty=on is for simulations"):
        load_config(["uncertainty=on", "out=unused"], "realexec")
    assert load_config(["out=unused"], "realexec").uncertainty == "off"


def test_on_is_the_default_and_part_of_the_configuration() -> None:
    assert config().uncertainty == "on"
    assert "uncertainty: 'on'" in resolved_yaml(config())


def test_the_console_says_how_far_off_at_its_head(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In short a line, and one range per latency; with --ranges every end and what they rest on."""
    assert cli.run(["simulate", *WORDS, f"out={tmp_path / 'short'}"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("  TTFT p99 ") and "report.html, or --ranges" in out and "step times x" not in out
    assert "range of p99" in out and "lowest" not in out and "range, not an interval" in out
    assert cli.run(["simulate", "--ranges", *WORDS, f"out={tmp_path / 'run'}"]) == 0
    out = capsys.readouterr().out
    head = " ".join(out.split("latency")[0].split())
    assert head.startswith("TTFT p99 ")
    assert "(range " in head
    assert "step times x" in head
    assert "engine overhead judged with the steps" in head and "front end fitted, 2 ms" in head
    assert out.count("lowest") == out.count("highest") == 4
    assert "range, not an interval" in out


def test_a_range_is_written_with_one_unit_where_there_is_one() -> None:
    summary = {"range": {"ttft_ms.p99": [371.0, 466.0], "ttft_ms.max": [800.0, 1200.0]}}
    assert range_text(summary, "ttft_ms.p99", duration) == "371 to 466 ms"
    assert range_text(summary, "ttft_ms.max", duration) == "800 ms to 1.20 s"
    assert range_text(summary, "e2e_ms.max", duration) == ""


def test_a_metric_that_one_run_has_not_has_no_range() -> None:
    runs = [{"ttft_ms": {"p99": 3.0}, "slo": {"attainment": None}}, {"ttft_ms": {"p99": 1.0}, "slo": {}}]
    assert ranges_of(runs) == {"ttft_ms.p99": [1.0, 3.0]}


def test_an_answer_that_is_another_at_an_end_flips() -> None:
    assert not flips(8, 8, 8)
    assert flips(8, 8, 12)
    assert flips("blitzscale", "serverlessllm", "serverlessllm")
    assert Answers(8, 8, 8).told("GPUs needed") == "GPUs needed: 8, at both ends of the range too"
    assert Answers(8, 8, 12).told("GPUs needed") == (
        "GPUs needed: 8, but 12 with all step times at their high end: the answer flips inside the range"
    )


def test_near_saturation_the_rate_from_which_requests_wait_is_told() -> None:
    """One A100 serves a request per second at both ends, and not eight at the high end."""
    load = ("trace=poisson", "trace.lengths=1000x300", "trace.requests=600", "cluster=a100_x1")
    found = {}
    for rate in (1, 8):
        prepared = prepare(config(*load, f"trace.rate_per_s={rate}", "engine.max_num_seqs=64"))
        _, section_of_range = section(prepared)
        found[rate] = section_of_range
    assert "near saturation" not in found[1]["range_in_short"]
    low, high = found[8]["range"]["throughput.req_per_s"]
    assert low < 8
    words = found[8]["range_in_short"]
    assert words.endswith(
        f"near saturation: the error of the steps decides how long requests wait; from {low:.3g} requests/s "
        f"on they wait at the high end, and {high:.3g} were served at the low end"
    )
