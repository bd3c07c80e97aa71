"""Traces as options of a run: each registered one composes, parameters are typed, contradictions refused."""

import inspect
from pathlib import Path

import numpy as np
import pytest

from servetwin.assemble.workload import selected, unused, workload_of
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.resolved import load_resolved, resolved_yaml
from servetwin.config.config import RunConfig
from servetwin.config.trace_config import DEFAULTS, TraceConfig
from servetwin.config.trace_options import trace_names, trace_parameters
from serving.vocabulary.errors import UserError
from serving.vocabulary.estimates import ModelEstimates
from traces.load import load
from traces.synthetic.registry import SYNTHETIC

# 1000 prompt tokens and 100 output tokens per second and replica.
SPEED = ModelEstimates(
    model="m",
    prefill_tokens_per_s=1000.0,
    decode_step_s=0.01,
    decode_sequences=1,
    decode_context_tokens=1024,
    kv_tokens=100_000,
)


def configured(*words: str) -> RunConfig:
    return load_config(["out=OUT", *words], "simulate")


def trace(*words: str) -> TraceConfig:
    return configured(*words).trace


@pytest.mark.parametrize("name", [name for name in trace_names() if name != "file"])
def test_every_trace_is_an_option_and_comes_back_from_its_file(name: str, tmp_path: Path) -> None:
    config = configured(f"trace={name}")
    assert config.trace.name == name and config.trace.synthetic == (name in SYNTHETIC)
    assert set(config.trace.params) == set(trace_parameters(name))
    path = tmp_path / "config.yaml"
    path.write_text(resolved_yaml(config))
    assert load_resolved(path) == config


@pytest.mark.parametrize("name", SYNTHETIC)
def test_every_drawn_trace_takes_plain_parameters_with_defaults(name: str) -> None:
    parameters = inspect.signature(SYNTHETIC[name], eval_str=True).parameters
    for key, parameter in parameters.items():
        ends = key in ("requests", "duration_s", "rates")  # each has no default beside the other
        allowed = (int, float, str, *((int | None, float | None, str | None) if ends else ()))
        assert parameter.annotation in allowed, key
        assert key == "seed" or parameter.default is not inspect.Parameter.empty, key


def test_the_unit_of_times_is_kept_and_files_from_before_it_open(tmp_path: Path) -> None:
    config = configured("trace=file", "trace.path=t.csv", "trace.time_unit=ms")
    assert config.trace.params["time_unit"] == "ms"
    path = tmp_path / "config.yaml"
    text = resolved_yaml(config)
    path.write_text(text)
    assert load_resolved(path) == config
    lines = [line for line in text.splitlines() if "time_unit" not in line]
    assert len(lines) == len(text.splitlines()) - 1
    path.write_text("\n".join(lines))
    again = load_config([f"config={tmp_path}", "out=OUT"], "simulate").trace
    assert again.params.get("time_unit") is None and again.path == "t.csv"


@pytest.mark.parametrize("name", ["poisson", "gamma", "azure_conv_like"])
def test_stages_of_rates_have_no_default_count(name: str) -> None:
    staged = trace(f"trace={name}", "trace.rates=[200@60s,100@60s]")
    assert staged.params["requests"] is None and len(selected(staged, seed=1)) > 16_000
    limited = trace(f"trace={name}", "trace.rates=[200@60s,100@60s]", "trace.requests=50")
    assert len(selected(limited, seed=1)) == 50
    assert trace(f"trace={name}").params["requests"] == 10_000


def test_a_share_of_the_capacity_scales_stages_and_keeps_their_times() -> None:
    words = ("trace=poisson", "trace.lengths=500x50", "trace.rates=[1@100s,3@100s]")
    plain = workload_of(trace(*words), 1, SPEED, 4)
    full = workload_of(trace(*words, "trace.utilization=0.9"), 1, SPEED, 4)
    ratio = [np.histogram(one.arrival_ns / 1e9, [0, 100, 200])[0] for one in (plain, full)]
    assert ratio[1] == pytest.approx(ratio[0] * (len(full) / len(plain)), rel=0.1)


def test_a_window_without_a_length_goes_to_the_end() -> None:
    words = ("trace=poisson", "trace.rates=[5@100s]")
    whole, rest = (selected(trace(*words, *more), 1) for more in ((), ("trace.window_start_s=40",)))
    since_ns = whole.arrival_ns - whole.arrival_ns[0]
    assert rest.arrival_ns.tolist() == (since_ns[since_ns >= 40e9] - 40 * 10**9).tolist()


def test_a_stated_duration_has_no_default_count() -> None:
    config = trace("trace=diurnal", "trace.rate_per_s=20", "trace.period_s=60", "trace.duration_s=900")
    assert config.params["requests"] is None and 17_500 < len(selected(config, seed=1)) < 18_500
    both = trace("trace=diurnal", "trace.rate_per_s=20", "trace.duration_s=900", "trace.requests=50")
    assert len(selected(both, seed=1)) == 50


def test_parameters_are_typed_by_the_function_they_go_to() -> None:
    config = trace("trace=llumnix_ls", "trace.gap_cv=4", "trace.requests=50")
    assert config.params == {"requests": 50, "rate_per_s": None, "gap_cv": 4.0, "priority_ratio": 0.0}
    assert len(selected(config, seed=1)) == 50
    for words, part in (
        (["trace=llumnix_ls", "trace.requests=1.5"], "trace.requests wants an integer"),
        (["trace=llumnix_ls", "trace.gap_cv=x"], "trace.gap_cv wants a number"),
        (["trace=llumnix_ls", "trace.onset_times_s=5"], "for the chosen trace=llumnix_ls: write only"),
        (["trace=azure_code", "trace.rate_per_s=5"], "write trace.rate_scale=FACTOR"),
    ):
        with pytest.raises(UserError) as caught:
            configured(*words)
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["trace=file"], "write trace.path=FILE"),
        (["trace=poisson", "trace.path=x.csv"], "trace.path does not fit trace=poisson"),
        (["trace=poisson", "trace.format=azure"], "trace.format does not fit trace=poisson"),
        (["trace.window=best", "trace.window_s=5"], "trace.window=best is unknown"),
        (["trace.window=busiest"], "trace.window has no length"),
        (["trace.start_s=5"], "write trace.window_start_s=VALUE"),
        (["trace.rates=[5@60s]"], "write trace=azure_conv_like"),
        (
            ["trace=llumnix_mm", "trace.rates=[5@60s]"],
            "does not fit trace=llumnix_mm: write trace=azure_conv_like",
        ),
        (
            ["trace=poisson", "trace.rates=[5@60s]", "trace.rate_per_s=5"],
            "trace.rates and trace.rate_per_s both",
        ),
        (["trace=poisson", "trace.rates=[5@60s]", "trace.clients=5"], "trace.rates changes arrival times"),
        (["trace=poisson", "trace.rates=[5@60s]", "trace.duration_s=5"], "write trace.window_s=VALUE"),
        (["trace=poisson", "trace.rates=[5@60s]", "models=zipf"], "models.rate_per_s=NUMBER"),
        (["trace.window=onset", "trace.window_start_s=5", "trace.window_s=5"], "write only one"),
        (["trace.rate_scale=2", "trace.utilization=0.5"], "trace.rate_scale and trace.utilization both"),
        (["trace.utilization=0.5", "trace.peak_share=1"], "write only one"),
        (
            ["trace=poisson", "trace.rate_per_s=1", "trace.utilization=2"],
            "trace.rate_per_s and trace.utilization",
        ),
        (["trace.rate_scale=0"], "trace.rate_scale=0.0 is out of range"),
        (["trace.window_s=-1"], "trace.window_s=-1.0 is out of range"),
    ],
)
def test_contradictions_are_refused(words: list[str], part: str) -> None:
    with pytest.raises(UserError) as caught:
        configured(*words)
    assert part in str(caught.value)


def drawn(**changes: object) -> TraceConfig:
    settings = DEFAULTS | {"params": {"requests": 2000, "rate_per_s": 1.0}} | changes
    return TraceConfig(name="poisson", synthetic=True, **settings)  # type: ignore[arg-type]


def test_transformations_come_in_the_order_that_the_class_says() -> None:
    config = drawn(window_start_s=100.0, window_s=500.0, lengths="ss", tokens_scale=2.0, limit=90,
                   rate_scale=3.0, time_compression=2.0)  # fmt: skip
    done = workload_of(config, 5, SPEED, 1)
    assert len(done) == 90
    starts = (
        "window from 100 to 600 s",
        "lengths",
        "tokens scaled by 2",
        "replicated 3x",
        "time compressed 2x",
    )
    labels = list(done.labels)[-6:]
    assert all(start in label for start, label in zip(starts, labels[:5], strict=True)), labels
    assert labels[5].startswith("first 90 of ")


def test_prompt_shares_scale_to_the_cluster_and_say_which_term_bound() -> None:
    source = selected(drawn(), 5)
    half = workload_of(drawn(prefill_share=0.5), 5, SPEED, replicas=4)
    wanted = 0.5 * 4 * 1000
    got = half.prompt_tokens.sum() / half.duration_s
    assert got == pytest.approx(wanted, rel=0.1)
    assert half.labels[-1].startswith("rate factor by mean ")
    peak = workload_of(drawn(prefill_share=0.5, peak_share=0.001), 5, SPEED, replicas=4)
    assert len(peak) < len(source) and ", by peak 0.00" in peak.labels[-1]


def test_utilization_draws_anew_where_the_drawing_takes_a_rate() -> None:
    config = drawn(utilization=0.5, params={"requests": 500, "rate_per_s": None})
    done = workload_of(config, 5, SPEED, replicas=10)
    assert len(done) == 500 and not any("replicated" in label for label in done.labels)


def test_what_a_run_does_not_look_at_is_a_label(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens,model,prefix_512\n0,10,5,a,1\n1,20,6,b,2\n")
    assert unused(load("file", path=path)) == [
        "the trace's 2 models are served by one",
        "shared prefixes of the trace are not used",
    ]
    assert unused(load("poisson", requests=5)) == []


def test_a_file_is_read_by_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n1.5,20,6\n")
    config = trace("trace=file", f"trace.path={path}")
    assert selected(config, 0).arrival_ns.tolist() == [0, 1_500_000_000]
    assert load("file", path=path, format="csv").prompt_tokens.tolist() == [10, 20]
