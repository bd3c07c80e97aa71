"""Many models in one run: laws of their arrivals, the objects of the run, and what is refused."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.assemble import build
from servetwin.assemble.hardware import hardware_of
from servetwin.assemble.hosted import hosted_models, seats_of, shapes_by_model
from servetwin.assemble.world_rows import world_rows
from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.resolved import load_resolved, resolved_yaml
from servetwin.config.config import RunConfig
from servetwin.config.models_config import ONE
from servetwin.run.simulate import Prepared, prepare
from serving.vocabulary.errors import UserError
from serving.vocabulary.layers import LayerRange
from tests.worlds.refusals import refuses
from traces.errors import TraceError
from traces.many import Bursts, many_models, merged_arrivals, model_arrivals_ns, with_hosted
from traces.synthetic.many_models import zipf_shares
from traces.synthetic.registry import SYNTHETIC
from traces.workload import Workload

POISSON = Bursts(gap_cv=1.0, factor=1.0, ramp_s=2.0, hold_s=20.0, decay_s=20.0, quiet_s=240.0)
BURSTS = dataclasses.replace(POISSON, factor=5.0, quiet_s=60.0)
LENGTHS = SYNTHETIC["gamma"](seed=3, requests=500)
RUN = (
    "models=zipf",
    "models.count=3",
    "models.requests=60",
    "models.rate_per_s=20",
    "trace=azure_conv_like",
    "trace.tokens_scale=0.2",
    "cluster=a100_x4",
)


def config_of(*words: str) -> RunConfig:
    return load_config([*words, "out=unused"], "simulate")


def prepared(*words: str) -> Prepared:
    return prepare(config_of(*words))


def of_model(workload: Workload, name: str) -> list[list[int]]:
    """Arrival and lengths of one model's requests."""
    assert workload.model is not None
    rows = workload.model.codes == workload.model.words.index(name)
    return [getattr(workload, key)[rows].tolist() for key in ("arrival_ns", "prompt_tokens", "output_tokens")]


# Laws of the arrivals


def test_requests_are_spread_over_the_models_by_zipf() -> None:
    shares = zipf_shares(16, 0.9)
    _, codes = merged_arrivals(7, 50 * shares, POISSON, requests=100_000)
    found, expected = np.bincount(codes, minlength=16), 100_000 * shares
    assert float(((found - expected) ** 2 / expected).sum()) < 37.7  # chi-square, 15 degrees, 0.1 %


def test_bursts_leave_the_shares_as_they_are_in_the_long_run() -> None:
    shares = zipf_shares(4, 1.0)
    _, codes = merged_arrivals(7, 20 * shares, BURSTS, requests=400_000)
    assert np.bincount(codes) / len(codes) == pytest.approx(shares, rel=0.05)


@pytest.mark.parametrize("bursts", [POISSON, BURSTS, dataclasses.replace(POISSON, gap_cv=3.0)])
def test_the_rates_of_all_models_add_up_from_the_first_second_on(bursts: Bursts) -> None:
    """Processes that all began in a quiet time would bring less than their rate at first."""
    rates = 2.0 * zipf_shares(5, 0.9)
    counts = [len(merged_arrivals(seed, rates, bursts, duration_s=40.0)[0]) for seed in range(400)]
    error = float(np.std(counts)) / len(counts) ** 0.5
    assert float(np.mean(counts)) == pytest.approx(80.0, abs=3.5 * error)


def test_one_more_model_changes_no_others_arrivals() -> None:
    rates = 3.0 * zipf_shares(6, 0.9)
    for end in ({"duration_s": 500.0}, {"requests": 1000}):
        before_ns, before = merged_arrivals(1, rates, BURSTS, **end)  # type: ignore[arg-type]
        after_ns, after = merged_arrivals(1, np.append(rates, 0.7), BURSTS, **end)  # type: ignore[arg-type]
        assert (after == 6).any()
        for model in range(6):
            old, new = before_ns[before == model].tolist(), after_ns[after == model].tolist()
            assert new == old[: len(new)] and len(new) > 10
            assert "requests" in end or len(new) == len(old)


def test_one_more_model_changes_no_others_lengths() -> None:
    three = many_models(
        LENGTHS, names="abc", rate_per_s=3.0, exponent=0.0, bursts=BURSTS, seed=5, duration_s=200.0
    )
    four = many_models(
        LENGTHS, names="abcd", rate_per_s=4.0, exponent=0.0, bursts=BURSTS, seed=5, duration_s=200.0
    )
    for name in "abc":
        assert of_model(three, name) == of_model(four, name)
        assert len(of_model(three, name)[0]) > 50
    assert len({tuple(map(tuple, of_model(four, name))) for name in "abcd"}) == 4


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 12),
    gap_cv=st.floats(0.3, 6.0),
    factor=st.floats(1.0, 20.0),
    quiet_s=st.floats(1.0, 500.0),
    requests=st.integers(1, 400),
)
def test_more_requests_only_add_at_the_end(
    seed: int, count: int, gap_cv: float, factor: float, quiet_s: float, requests: int
) -> None:
    bursts = dataclasses.replace(BURSTS, gap_cv=gap_cv, factor=factor, quiet_s=quiet_s)
    names = [str(index) for index in range(count)]
    short, long = (
        many_models(
            LENGTHS, names=names, rate_per_s=2.0, exponent=0.9, bursts=bursts, seed=seed, requests=rows
        )
        for rows in (requests, 3 * requests)
    )
    assert len(short) == requests and len(long) == 3 * requests
    assert short.model is not None and long.model is not None
    assert long.arrival_ns[:requests].tolist() == short.arrival_ns.tolist()
    assert long.model.codes[:requests].tolist() == short.model.codes.tolist()
    assert long.prompt_tokens[:requests].tolist() == short.prompt_tokens.tolist()
    assert (np.diff(long.arrival_ns) >= 0).all()


def test_a_trace_ends_at_whichever_comes_first() -> None:
    rates = 10.0 * zipf_shares(4, 0.9)
    in_time, _ = merged_arrivals(2, rates, POISSON, duration_s=30.0)
    both, _ = merged_arrivals(2, rates, POISSON, requests=10**6, duration_s=30.0)
    few, _ = merged_arrivals(2, rates, POISSON, requests=50, duration_s=30.0)
    assert both.tolist() == in_time.tolist() and in_time[-1] < 30e9
    assert few.tolist() == in_time[:50].tolist()


def test_a_burst_is_as_high_and_as_long_as_it_says() -> None:
    shape = dataclasses.replace(BURSTS, factor=4.0, ramp_s=2.0, hold_s=20.0, decay_s=10.0, quiet_s=100.0)
    arrival_ns = model_arrivals_ns(0, 0, 500.0, shape, 5_000.0)
    per_s = np.bincount(arrival_ns // 10**9, minlength=5_000)
    base = 500.0 / shape.mean_to_base
    high = per_s > 3.5 * base
    assert per_s[high].mean() == pytest.approx(4 * base, rel=0.03)
    assert np.median(per_s) == pytest.approx(base, rel=0.03)
    assert high.mean() == pytest.approx(20 / 132, rel=0.25)
    assert len(arrival_ns) == pytest.approx(500 * 5_000, rel=0.1)


def test_models_do_not_burst_together() -> None:
    counts = [
        np.bincount(model_arrivals_ns(0, model, 100.0, BURSTS, 5_000.0) // 10**10, minlength=500)
        for model in range(2)
    ]
    alone = float(np.corrcoef(counts[0][:-1], counts[0][1:])[0, 1])
    assert alone > 0.5
    assert abs(float(np.corrcoef(*counts)[0, 1])) < 0.15


def test_lengths_come_from_one_row_of_the_trace_together() -> None:
    drawn = many_models(
        LENGTHS, names="ab", rate_per_s=1.0, exponent=1.0, bursts=POISSON, seed=0, requests=5000
    )
    pairs = set(zip(LENGTHS.prompt_tokens.tolist(), LENGTHS.output_tokens.tolist(), strict=True))
    assert set(zip(drawn.prompt_tokens.tolist(), drawn.output_tokens.tolist(), strict=True)) <= pairs
    assert drawn.prompt_tokens.mean() == pytest.approx(LENGTHS.prompt_tokens.mean(), rel=0.1)


def test_the_traces_own_models_are_handed_out_in_turns_by_popularity() -> None:
    trace = SYNTHETIC["zipf_mix"](seed=1, requests=3000, models="7", exponent=1.0)
    hosted = with_hosted(trace, ["a", "b", "c"])
    assert trace.model is not None and hosted.model is not None
    counts = list(trace.model.counts().values())
    assert hosted.model.counts() == {name: sum(counts[index::3]) for index, name in enumerate("abc")}
    assert hosted.arrival_ns.tolist() == trace.arrival_ns.tolist()
    refuses(TraceError, "models=zipf", with_hosted, LENGTHS, ["a", "b"])


@pytest.mark.parametrize(
    ("given_", "word"),
    [
        ({"requests": None}, "requests nor duration_s"),
        ({"requests": 10**9}, "trace.requests"),
        ({"requests": None, "duration_s": 1e9, "rate_per_s": 100.0}, "shorter"),
        ({"rate_per_s": 1e-10}, "31 years"),
        ({"rate_per_s": 0.0}, "rate_per_s"),
        ({"requests": None, "duration_s": 1e-6}, "before the first arrival"),
        ({"bursts": dataclasses.replace(BURSTS, quiet_s=1e-6, hold_s=1e-6, ramp_s=1e-6, decay_s=1e-6),
          "rate_per_s": 0.001, "requests": 10**4}, "quiet_s"),
    ],
)  # fmt: skip
def test_arrivals_that_cannot_be_drawn_are_refused(given_: dict[str, Any], word: str) -> None:
    usual: dict[str, Any] = {"rate_per_s": 1.0, "exponent": 0.9, "bursts": BURSTS, "seed": 0, "requests": 10}
    refuses(TraceError, word, many_models, LENGTHS, "ab", **{**usual, **given_})


@pytest.mark.parametrize("key", ["gap_cv", "factor", "ramp_s", "hold_s", "decay_s", "quiet_s"])
def test_a_process_out_of_range_is_refused(key: str) -> None:
    refuses(TraceError, key, dataclasses.replace, BURSTS, **{key: 0.0})


# The objects of a run


def test_one_model_is_the_run_without_the_group(tmp_path: Path) -> None:
    words = ("trace=azure_conv_like", "trace.requests=40", "trace.tokens_scale=0.2", "journal=true", "out=")
    for name, more in (("plain", []), ("one", ["models=one"])):
        folder = tmp_path / name / "run"
        assert cli.run(["simulate", *words[:-1], *more, f"out={folder}"]) == 0
        text = (folder / "config.yaml").read_text(encoding="utf-8")
        assert "models:" not in text and load_resolved(folder / "config.yaml").models == ONE
        assert "models" not in json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    plain, one = (pq.read_table(tmp_path / name / "run" / "requests.parquet") for name in ("plain", "one"))
    assert plain.equals(one) and "model" not in plain.column_names
    journals = [
        (tmp_path / name / "run" / "journal").read_bytes().splitlines()[1:-1] for name in ("plain", "one")
    ]
    assert journals[0] == journals[1]


def test_one_model_keeps_its_name_and_the_traces_requests() -> None:
    config = config_of("trace=azure_conv_like", "trace.requests=50", "model.tp=2")
    (only,) = hosted_models(config)
    assert (only.name, only.shape_name, only.tp) == ("llama3_8b", "llama3_8b", 2)
    run = prepare(config)
    trace = SYNTHETIC["azure_conv_like"](seed=0, requests=50)
    assert run.workload.arrival_ns.tolist() == trace.arrival_ns.tolist()
    assert [replica.gpus for replica in run.replicas] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert run.hardware is run.hardware_of_model["llama3_8b"]


def test_hosted_models_are_copies_of_the_shapes_in_turns() -> None:
    config = config_of("models=zipf", "models.count=5", "models.shapes=llama3_8b+mistral_24b:2", "model.tp=1")
    hosted = hosted_models(config)
    assert [model.name for model in hosted] == [
        "llama3_8b#0000", "mistral_24b#0001", "llama3_8b#0002", "mistral_24b#0003", "llama3_8b#0004",
    ]  # fmt: skip
    assert [model.tp for model in hosted] == [1, 2, 1, 2, 1]
    shapes = shapes_by_model(config)
    assert shapes["mistral_24b#0003"].weight_bytes == hosted[3].shape.weight_bytes > 40e9
    hardware = hardware_of(config)
    assert hardware["llama3_8b#0000"] is hardware["llama3_8b#0004"] is not hardware["mistral_24b#0001"]
    prototype = build.prototype_of(config, hosted[1], hardware["mistral_24b#0001"])
    assert (prototype.id, prototype.gpus, prototype.model) == (-1, (), "mistral_24b#0001")
    assert (
        prototype.layers == LayerRange(0, 40)
        and prototype.kv_blocks == hardware["mistral_24b#0003"].kv_blocks
    )
    estimates = build.estimates_of(config, hardware)
    assert [entry.model for entry in estimates.models] == [model.name for model in hosted]
    assert estimates.of("llama3_8b#0004").kv_tokens != estimates.of("mistral_24b#0001").kv_tokens


@settings(max_examples=15)
@given(gpus=st.integers(8, 40), tps=st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=3))
def test_every_model_has_gpus_of_its_own(gpus: int, tps: list[int]) -> None:
    shapes = "+".join(f"llama3_8b:{tp}" for tp in tps)
    seats = seats_of(
        config_of("models=zipf", "models.count=2", f"models.shapes={shapes}", f"cluster=a100_x{gpus}")
    )
    used = [gpu for _, group in seats for gpu in group]
    assert len(set(used)) == len(used) and set(used) <= set(range(gpus))
    assert {model.name[-4:] for model, _ in seats} == {"0000", "0001"}
    for model, group in seats:
        assert group == tuple(range(group[0], group[0] + model.tp)) and group[0] % model.tp == 0
    smallest = min(model.tp for model, _ in seats)
    free = sorted(set(range(gpus)) - set(used))
    groups = [
        start for start in free if start % smallest == 0 and set(range(start, start + smallest)) <= set(free)
    ]
    assert groups == [], "GPUs are left over that some model could use"


def test_spare_instances_go_to_the_most_popular() -> None:
    run = prepared(*RUN)
    assert [replica.model[-4:] for replica in run.replicas] == ["0000", "0001", "0002", "0000"]
    assert [replica.id for replica in run.replicas] == [0, 1, 2, 3]


def test_requests_carry_the_name_of_their_model() -> None:
    run = prepared(*RUN)
    requests = [request for request, _ in build.arrivals_of(run.config, run.workload, run.limits)]
    assert run.workload.model is not None
    assert [request.model for request in requests] == run.workload.model.tolist()
    assert len({request.model for request in requests}) == 3
    assert set(world_rows(run.hardware_of_model)) == {model.name for model in hosted_models(run.config)}


def test_the_same_seed_draws_the_same_requests_and_another_does_not() -> None:
    first, second, other = (prepared(*RUN, f"seed={seed}").workload for seed in (4, 4, 5))
    rows = [
        (workload.arrival_ns.tolist(), workload.prompt_tokens.tolist(), workload.model.tolist())  # type: ignore[union-attr]
        for workload in (first, second, other)
    ]
    assert rows[0] == rows[1]
    assert all(mine != theirs for mine, theirs in zip(rows[0], rows[2], strict=True))


def test_without_a_rate_the_models_share_that_of_the_trace() -> None:
    words = ("models=zipf", "models.burst_factor=1", "trace=gamma", "trace.gap_cv=1", "cluster=a100_x16")
    workload = prepared(*words, "trace.rate_per_s=40", "trace.requests=4000").workload
    assert len(workload) == 4000
    assert workload.mean_rate_per_s == pytest.approx(40.0, rel=0.1)


def test_a_utilization_is_the_share_of_the_gpus_in_the_mix_of_models() -> None:
    words = (
        "models=zipf",
        "models.count=4",
        "models.shapes=llama3_8b+mistral_24b:2",
        "models.burst_factor=1",
    )
    run = prepared(
        *words, "trace=azure_conv_like", "trace.requests=6000", "trace.utilization=0.6", "cluster=a100_x8"
    )
    entries = {entry.model: entry for entry in run.estimates.models}
    tp = {model.name: model.tp for model in hosted_models(run.config)}
    busy_s = 0.0
    for request, output in build.arrivals_of(run.config, run.workload, run.limits):
        entry = entries[request.model]
        decode_s = output * entry.decode_step_s / entry.decode_sequences
        busy_s += tp[request.model] * (request.prompt_tokens / entry.prefill_tokens_per_s + decode_s)
    assert busy_s / run.workload.duration_s / 8 == pytest.approx(0.6, rel=0.06)


def test_a_run_serves_every_request_on_an_instance_of_its_model(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert cli.run(["simulate", *RUN, "journal=true", f"out={folder}"]) == 0
    run = prepared(*RUN)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    table = pq.read_table(folder / "requests.parquet")
    assert str(table.schema.field("model").type).startswith("dictionary")
    model_of = [replica.model for replica in run.replicas]
    names, replicas = table["model"].to_pylist(), table["replica"].to_pylist()
    assert names == [model_of[replica] for replica in replicas] and len(names) == 60
    section = summary["models"]
    assert section["count"] == 3 and section["asked_for"] == 3 and "others" not in section
    ttft_ms = np.array(table["ttft_ms"])
    for name, numbers in section["busiest"].items():
        own = ttft_ms[np.array(names) == name]
        assert numbers["requests"] == numbers["finished"] == len(own)
        assert numbers["ttft_ms"] == {"mean": float(own.mean()), "p99": float(np.quantile(own, 0.99))}
    assert summary["model"] == "3 of llama3_8b" and len(summary["estimates"]["models"]) == 1
    assert load_resolved(folder / "config.yaml").models == config_of(*RUN).models
    assert cli.run(["replay", str(folder)]) == 0


def test_the_summary_names_the_busiest_and_adds_up_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    given_ = {word.partition("=")[0]: word for word in RUN}
    given_ |= {"models.count": "models.count=50", "models.requests": "models.requests=400"}
    given_["cluster"] = "cluster=a100_x50"
    assert cli.run(["simulate", *given_.values(), f"out={folder}"]) == 0
    section = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["models"]
    busiest = [entry["requests"] for entry in section["busiest"].values()]
    assert len(busiest) == 20 and busiest == sorted(busiest, reverse=True)
    assert section["others"]["count"] == 30 and sum(busiest) + section["others"]["requests"] == 400


def test_models_of_the_trace_are_served_as_they_arrive() -> None:
    words = ("models=of_trace", "models.count=4", "trace=zipf_mix", "trace.requests=900", "cluster=a100_x4")
    run = prepared(*words)
    trace = SYNTHETIC["zipf_mix"](seed=0, requests=900)
    assert run.workload.arrival_ns.tolist() == trace.arrival_ns.tolist()
    assert run.workload.prompt_tokens.tolist() == trace.prompt_tokens.tolist()
    assert trace.model is not None and len(trace.model.counts()) > 10
    assert any(f"{len(trace.model.counts())} models of the trace" in label for label in run.workload.labels)


def test_a_configuration_of_many_models_reads_back_equal(tmp_path: Path) -> None:
    config = config_of(*RUN, "models.shapes=llama3_8b+tiny_llama", "models.duration_s=30")
    (tmp_path / "config.yaml").write_text(resolved_yaml(config), encoding="utf-8")
    assert load_resolved(tmp_path / "config.yaml") == config


# What is refused


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["models.count=4"], ["models.count=4", "models=one", "models=zipf"]),
        (["models=zipf", "models.count=1"], ["models.count=1", "from 2 up to 1000"]),
        (["models=zipf", "models.count=1001"], ["models.count=1001", "1000"]),
        (["models=zipf", "models.zipf=-1"], ["models.zipf=-1", "from 0"]),
        (["models=zipf", "models.gap_cv=null"], ["models.gap_cv=null", "models.gap_cv=VALUE"]),
        (["models=zipf", "models.burst_factor=0.5"], ["models.burst_factor", "from 1"]),
        (["models=zipf", "models.rate_per_s=1", "trace.utilization=0.5"], ["models.rate_per_s", "only one"]),
        (["models=zipf", "models.shapes=llama3_8b+"], ["models.shapes=llama3_8b+", "''"]),
        (["models=zipf", "models.shapes=llama3_8b:0"], ["'llama3_8b:0'", "mistral_24b:2"]),
        (["models=of_trace", "models.quiet_s=3"], ["models.quiet_s=3", "models=of_trace", "models=zipf"]),
        (["models=many"], ["models=many", "of_trace, one, zipf"]),
    ],
)
def test_settings_that_do_not_fit_are_refused(words: list[str], said: list[str]) -> None:
    with pytest.raises(UserError) as refusal:
        config_of(*words)
    assert all(word in str(refusal.value) for word in said), refusal.value


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["models=zipf"], ["models.count=16", "8 GPUs", "models.count=8", "elastic"]),
        (["models=of_trace", "models.count=2"], ["trace=azure_conv_like", "models=zipf"]),
        (
            ["models=zipf", "models.count=2", "models.shapes=llama3_8b:4", "cluster=blitz_a_2x6"],
            ["llama3_8b:4", "6 GPUs of a host", "divides 6"],
        ),
    ],
)
def test_runs_that_cannot_be_built_are_refused(words: list[str], said: list[str]) -> None:
    with pytest.raises((UserError, TraceError)) as refusal:
        prepared(*words, "trace=azure_conv_like")
    assert all(word in str(refusal.value) for word in said), refusal.value


def test_a_real_worker_is_one_gpu() -> None:
    assert load_config(["models=zipf", "out=unused"], "realexec").models.count == 16
    with pytest.raises(UserError, match="a real worker is one: write names without a number"):
        load_config(["models=zipf", "models.shapes=tiny_llama+tiny_llama:2", "out=unused"], "realexec")


def test_a_model_for_which_no_request_fits_is_named() -> None:
    words = (
        "models=zipf",
        "models.count=2",
        "models.shapes=llama3_8b+llama2_13b",
        "engine.step_time=roofline",
        "engine.max_model_len=131072",
    )
    with pytest.raises(UserError, match="llama2_13b#0001 fits"):
        prepared(*words, "trace=azure_conv_like", "trace.requests=50", "trace.lengths=71000x10")
