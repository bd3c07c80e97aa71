"""Every word a user can get wrong is answered with one sentence that names it and says what to write."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.config.compose.compose import load_config
from servetwin.config.config import RunConfig
from serving.vocabulary.errors import UserError
from tests.worlds.refusals import refuses

PER_INSTANCE = "system.instances.queue=per_instance"
SPLIT = ("system=distserve_full", "cluster=blitz_b")
ELASTIC = ("system=blitz_multicast", "cluster=blitz_b")

# (words, what the sentence must hold)
MIGRATING = ["system/migration=least_loaded", "cluster=blitz_b"]
SWAPS = ["engine.preemption=swap"]
REFUSED: list[tuple[list[str], list[str]]] = [
    # words that are no key=value
    (["seed"], ["'seed'", "no '='", "write seed=VALUE"]),
    (["--multirun"], ["'--multirun'", "no '='", "key=value"]),
    (["=5"], ["'=5'", "key"]),
    (["seed =5"], ["'seed =5'", "without spaces"]),
    (["seed="], ["seed= has no value"]),
    (["trace.path="], ["trace.path= has no value"]),
    (["+seed=1"], ["'+seed=1'", "write seed=1"]),
    (["++seed=1"], ["'++seed=1'", "write seed=1"]),
    (["~trace"], ["'~trace'", "write trace=VALUE"]),
    (["system/dispatch@x=round_robin"], ["system/dispatch@x", "key"]),
    (["seed=1", "seed=2"], ["seed is given twice", "seed=1", "seed=2"]),
    (["model=llama2_7b", "model=llama3_8b"], ["model is given twice"]),
    (["out=B"], ["out is given twice"]),
    (
        [
            "system/admission=token_bucket",
            "system.admission.rate_per_s=1",
            "system.admission.params.rate_per_s=2",
        ],
        ["system.admission.params.rate_per_s is given twice"],
    ),
    # times beyond those that the clock counts
    (["series.period_s=1e10"], ["series.period_s=1e+10", "up to 1e+09"]),
    (["trace.clients=4", "trace.client_think_s=1e30"], ["trace.client_think_s=1e+30", "up to 1e+09"]),
    (["trace.window_start_s=0", "trace.window_s=1e300"], ["trace.window_s=1e+300", "up to 1e+09"]),
    (["migration.control_ms=1e300"], ["migration.control_ms=1e+300", "up to 1e+12"]),
    (["faults=one_replica", "faults.replica=0", "faults.at_s=1e300"], ["faults.at_s=1e+300", "up to 1e+09"]),
    (["trace=diurnal", "trace.period_s=1e300"], ["trace.period_s=1e+300", "up to 1e+09"]),
    # keys nothing has
    (["trace.limt=4"], ["'trace.limt'", "write trace.limit="]),
    (["limit=4"], ["'limit'", "write trace.limit="]),
    (["trace.duration=60"], ["'trace.duration'", "write trace.window_s=VALUE if"]),
    (["duration=60"], ["'duration'", "write trace.window_s=VALUE if"]),
    (
        ["trace=burstgpt_like", "trace.duration=60"],
        ["write trace.duration_s=VALUE or trace.window_s=VALUE if"],
    ),
    (["trace=burstgpt_like", "duration=60"], ["write trace.duration_s=VALUE or trace.window_s=VALUE if"]),
    (
        ["trace=azure_conv_like", "trace.rate=4"],
        ["write trace.rate_scale=VALUE or trace.rate_per_s=VALUE if"],
    ),
    (["trace=azure_conv_like", "trace.qps=4"], ["write trace.rate_per_s=VALUE if"]),
    (["engin.max_num_seqs=4"], ["write engine.max_num_seqs="]),
    (["max_num_seq=4"], ["'max_num_seq'", "write engine.max_num_seqs="]),
    (["modle=llama2_7b"], ["'modle'", "write model="]),
    (["dispatch=least_kv"], ["'dispatch'", "system/dispatch"]),
    (["qqq=4"], ["'qqq'", "engine, estimates, faults, journal, migration, model, models"]),
    (["migration.mode=live", "migration.max_stages=4"], ["system/migration", "least_loaded"]),
    (["system/migration=least_loaded"], ["cluster=a100_x8", "cluster=llumnix"]),
    ([*MIGRATING, "migration.mode=teleport"], ["migration.mode=teleport", "live, stop_and_copy, recompute"]),
    ([*MIGRATING, "migration.last_stage=any"], ["migration.last_stage=any", "paper, shipped, step"]),
    ([*MIGRATING, "migration.victims=host"], ["migration.victims=host", "recompute, neighbour"]),
    (
        [*MIGRATING, "migration.reserve=0.1"],
        ["migration.reserve=0.1", "victims=neighbour", "write that too"],
    ),
    (
        [*MIGRATING, "migration.victims=neighbour", "migration.mode=recompute"],
        ["migration.victims=neighbour sends KV", "migration.mode=live"],
    ),
    ([*MIGRATING, "migration.max_stages=0"], ["migration.max_stages"]),
    ([*MIGRATING, "migration.into_loading=true"], ["system=vllm", "llumnix_base_autoscaled"]),
    (
        [*MIGRATING, "migration.into_loading=true", "migration.mode=stop_and_copy"],
        ["migration.mode=stop_and_copy", "migration.into_loading=false"],
    ),
    ([*MIGRATING, *SPLIT[:1], "migration.victims=neighbour"], ["migration.victims=recompute"]),
    (["system/migration=defragment", "cluster=blitz_b"], ["system=distserve_half", "llumnix"]),
    ([*MIGRATING, "system=blitzscale"], ["system/live=ilp_free", "system/live=none"]),
    (["engine.preemption=drop"], ["engine.preemption=drop", "recompute, swap"]),
    (["engine.swap_space_gib=8"], ["engine.swap_space_gib=8", "engine.preemption=swap"]),
    ([*SWAPS], ["system/batcher=chunked_prefill", "engine.preemption=recompute"]),
    ([*SWAPS, "engine=vllm_v0"], ["cluster=a100_x8 has no links", "cluster=llumnix"]),
    ([*SWAPS, "engine=vllm_v0", "engine.prefix_caching=true"], ["engine.prefix_caching=true"]),
    ([*SWAPS, "engine=vllm_v0", "model.pp=2"], ["model.pp=2"]),
    ([*SWAPS, "engine=vllm_v0", *SPLIT], ["system=distserve_full, whose decode instances"]),
    ([*SWAPS, "engine=blitz_native", "system=blitzscale", "cluster=blitz_b"], ["does not fit system"]),
    (["workers=2"], ["unknown key 'workers'", "realexec", "cluster=a100_x8"]),
    (["kind=realexec"], ["unknown key 'kind'"]),
    (["system.instances.count=2"], ["unknown key 'system.instances.count'"]),
    (["engine=vllm_v1", "engine.batcher.x=1"], ["'engine.batcher.x'"]),
    # groups and options
    (["cluster=a100_x9000"], ["cluster=a100_x9000", "a100_xN (N from 1 to 8192)", "local"]),
    (["cluster=a100_x0"], ["cluster=a100_x0", "a100_xN"]),
    (["cluster=a100_x08"], ["cluster=a100_x08", "a100_xN"]),
    (["cluster=h900_x8"], ["cluster=h900_x8", "a100_xN"]),
    (["cluster=h100x8"], ["write cluster=h100_x8 if that is meant"]),
    (["cluster=8xH100"], ["write cluster=h100_x8 if that is meant"]),
    (["cluster=a100_40g_x0"], ["a100_xN"]),
    (["cluster=Blitz-B_big"], ["write cluster=blitz_b if that is meant"]),
    (
        ["cluster=H100-PCIe_x8"],
        ["write cluster=h100_x8 if that is meant", "FILE.yaml_xN of a GPU"],
    ),
    (["model=foo"], ["model=foo", "the path of the model's own config.json", "model=PATH"]),
    (["model=Qwen/Qwen3-8B"], ["Qwen/Qwen3-8B is not in the catalogue", "model=FOLDER"]),
    (["model=Qwen/Qwen3-32B-GGUF"], ["it has qwen3_32b, which is Qwen/Qwen3-32B", "config.json"]),
    (["gpu=h100"], ["write cluster=GPU_xN, such as cluster=h100_x8"]),
    (["rate=4"], ["trace.rate_scale=VALUE"]),
    (["trace=poisson", "rate=4"], ["trace.rate_per_s=VALUE"]),
    (["policy=round_robin"], ["write system/dispatch=VALUE"]),
    (["seed=0-7"], ['servetwin sweep takes several: write "seed=range(0,8)" there for 0-7']),
    (["seed=0..7"], ["range(0,8)"]),
    (["slo.ttft_ms=1.5s"], ["a number, in ms, without the unit: write slo.ttft_ms=1500"]),
    (["series.period_s=500ms"], ["in s, without the unit: write series.period_s=0.5"]),
    (["seed=[0,1]"], ["write seed=0,1 there"]),
    (["engine=vllm"], ["engine=vllm", "vllm_v0, vllm_v1"]),
    (["model=llama3_8"], ["model=llama3_8", "model=llama3_8b if that is meant"]),
    (["system/dispatch=random"], ["system/dispatch=random", "least_kv, least_outstanding"]),
    (["system.dispatch=least_kv"], ["write system/dispatch=least_kv"]),
    (["model.name=other"], ["model.name belongs", "write model=OPTION", "llama2_7b"]),
    (["slo.source=me"], ["slo.source belongs", "write slo=OPTION"]),
    (["cluster.gpu=h100"], ["is of this machine's workers", "write cluster=OPTION, such as h100_x8"]),
    (["cluster=local", "cluster.gpu=h300"], ["cluster.gpu=h300 is not in the catalogue", "h100, h200"]),
    (["system.dispatch.policy=os:system"], ["write system/dispatch=OPTION"]),
    # types
    (["seed=abc"], ["seed=abc", "an integer", "write"]),
    (["seed=1.5"], ["seed=1.5", "an integer", "without a fraction"]),
    (["seed=1e-3"], ["seed=1e-3", "an integer"]),
    (["seed=1.5e0"], ["seed=1.5e0", "an integer"]),
    (["seed=1e30"], ["seed=1e30", "below 2^63"]),
    (["seed=" + "9" * 5000], ["seed=999", "an integer"]),
    (["seed=٣"], ["seed=٣", "an integer"]),
    (["seed=null"], ["seed=null", "an integer"]),
    (["seed='5'"], ["seed='5'", "an integer"]),
    (["seed=[1,2]"], ["seed=[1,2]", "an integer"]),
    (["journal=yes"], ["journal=yes", "true or false", "journal=true"]),
    (["journal=1"], ["journal=1", "true or false"]),
    (["engine.kv_tokens=lots"], ["engine.kv_tokens=lots", "an integer or null"]),
    (["engine.step_time=null"], ["engine.step_time=null", "a word"]),
    (["engine.watermark=nan"], ["engine.watermark=nan", "finite"]),
    (["slo.ttft_ms=inf"], ["slo.ttft_ms=inf", "finite"]),
    (["slo.ttft_ms=1e999"], ["slo.ttft_ms=1e999", "a number"]),
    (["trace.utilization=-inf"], ["trace.utilization=-inf", "finite"]),
    (["seed=${model.tp}"], ["seed=${model.tp}", "write the value itself"]),
    # sweeps
    (["seed=1,2"], ["servetwin sweep seed=1,2 for", "such as seed=1"]),
    (["seed=,"], ["seed=,", "sweep", "seed=VALUE"]),
    (["engine=vllm_v0,vllm_v1"], ["sweep", "engine=vllm_v0"]),
    (["seed=range(1,4)"], ["seed=range(1,4)", "sweep"]),
    (["model=glob(*)"], ["model=glob(*)", "sweep"]),
    # ranges
    (["trace.limit=0"], ["trace.limit=0", "at least 1"]),
    (["trace.tokens_scale=0"], ["trace.tokens_scale=0", "above 0"]),
    (["trace.tokens_scale=-1"], ["trace.tokens_scale=-1", "above 0"]),
    (["trace.utilization=0"], ["trace.utilization=0", "above 0 up to 10"]),
    (["trace.utilization=10.5"], ["trace.utilization=10.5", "up to 10"]),
    (["engine.watermark=1"], ["engine.watermark=1", "from 0 and below 1"]),
    (["engine.watermark=-0.1"], ["engine.watermark=-0.1", "from 0"]),
    (["engine.overhead.step_s=1e300"], ["engine.overhead.step_s", "from 0 up to 10"]),
    (["slo.ttft_ms=1e308"], ["slo.ttft_ms", "up to"]),
    (["engine.overhead.step_s=-1"], ["engine.overhead.step_s=-1", "from 0 up to 10"]),
    (["engine.gpu_memory_utilization=1.1"], ["engine.gpu_memory_utilization=1.1", "up to 1"]),
    (["engine.max_num_seqs=0"], ["engine.max_num_seqs=0", "at least 1"]),
    (["engine.block_tokens=0"], ["engine.block_tokens=0", "at least 1"]),
    (["engine.max_new_tokens=0"], ["engine.max_new_tokens=0", "at least 1"]),
    (["model.tp=0"], ["model.tp=0", "at least 1"]),
    (["slo.tpot_ms=0"], ["slo.tpot_ms=0", "above 0"]),
    (["seed=-1"], ["seed=-1", "at least 0"]),
    # contradictions
    (
        ["engine.max_num_batched_tokens=100", "engine.max_num_seqs=256"],
        ["engine.max_num_batched_tokens=100", "engine.max_num_seqs=256"],
    ),
    (["engine.kv_tokens=8"], ["engine.kv_tokens=8", "engine.kv_tokens=32"]),
    (["engine.step_time=op_table"], ["engine.profile=FILE", "servetwin profile import"]),
    (["engine.profile=x.json", "engine.step_time=roofline"], ["step_time=roofline", "calibrated_roofline"]),
    (["model.tp=3"], ["model.tp=3", "8 GPUs", "cluster=a100_x8"]),
    (["model=qwen2_5_72b", "cluster=a100_x2"], ["model.tp=4", "2 GPUs"]),
    (["cluster.gpus=4"], ["cluster.gpus=4", "write cluster=a100_x4"]),
    (["engine.batcher=fifo"], ["engine.batcher=fifo", "chunked_prefill, prefill_first"]),
    (
        ["engine.step_time=magic"],
        ["engine.step_time=magic", "auto, whole_step, op_table, linear, calibrated_roofline"],
    ),
    (["trace.requests=5"], ["trace.requests", "write trace.limit=5"]),
    (["trace.rate_per_s=5"], ["trace.rate_per_s", "trace.utilization"]),
    (["trace=azure_conv_like", "trace.path=x"], ["trace.path", "azure_conv_like"]),
    (
        ["trace=azure_conv_like", "trace.rate_per_s=2", "trace.utilization=0.5"],
        ["trace.rate_per_s and trace.utilization", "only one"],
    ),
    (["system.dispatch.alpha=1"], ["'system.dispatch.alpha'", "least_outstanding", "no parameters"]),
    (
        ["system/admission=token_bucket", "system.admission.rate=1"],
        ["'system.admission.rate'", "system.admission.burst, system.admission.rate_per_s"],
    ),
    (["system/admission=token_bucket"], ["write system.admission.rate_per_s=VALUE"]),
    (["system.batcher.max_num_seqs=3"], ["write engine.max_num_seqs=VALUE"]),
    # lists, and null where the policy takes it
    (["system.scaler.ways=cancel_drain", *ELASTIC], ["system.scaler.ways", "a list", "[A,B]"]),
    (["system.scaler.ways=[cancel_drain,]", *ELASTIC], ["system.scaler.ways", "a list"]),
    (["system.scaler.prefill=[0.5", *ELASTIC], ["system.scaler.prefill", "a list"]),
    (["system.scaler.prefill=[[1],2]", *ELASTIC], ["system.scaler.prefill", "a list"]),
    (["system.cache.host_gb=many", *ELASTIC], ["system.cache.host_gb", "a number or null"]),
    (["system.cache.drop_when_deployed=null", *ELASTIC], ["drop_when_deployed", "true or false"]),
    # roles, sizes and elasticity
    (["estimates=guess"], ["estimates=guess", "model, artefact"]),
    (["engine.reserve=magic"], ["engine.reserve=magic", "max_new_tokens, oracle, mean"]),
    (["system.instances.size=tiny"], ["size=tiny", "full, half, minimum"]),
    (["system.instances.size=minimum"], ["size=minimum", "system/scaler=none", "=full or =half"]),
    (["system.instances.prefill=3", *SPLIT], ["system.instances.decode is missing"]),
    (["system.instances.prefill=3"], ["split the roles", "leave them out"]),
    (["system.instances.prefill_min=2"], ["prefill_min=2", "a scaler", "instances.prefill and .decode"]),
    (["system.instances.both_max=2", *SPLIT], ["both_max=2", "a scaler", "split=false"]),
    (["system.instances.decode_min=-1", *ELASTIC], ["decode_min=-1", "at least 0"]),
    (
        ["system.instances.decode_min=3", "system.instances.decode_max=2", *ELASTIC],
        ["decode_max=2", "larger"],
    ),
    (["system.instances.monitor_period_ms=0", *ELASTIC], ["monitor_period_ms=0", "at least 0.001"]),
    (["system.instances.keep_parameters_ms=-1", *ELASTIC], ["keep_parameters_ms=-1", "at least 0"]),
    (["system.instances.queue=mine"], ["queue=mine", "common, per_instance", "null"]),
    (["system.instances.queue=common", *SPLIT], ["queue=common", "split=true", "leave it out"]),
    (
        ["system=blitzscale", "cluster=blitz_b", "system.instances.split=false", PER_INSTANCE],
        ["per_instance", "system/live=ilp_free", "=common or system/live=none"],
    ),
    (["system=blitz_multicast"], ["system=blitz_multicast", "cluster=a100_x8 has none", "cluster=blitz_a"]),
    (["engine=vllm_v1", *SPLIT], ["engine.asynchronous=true", "engine=blitz_native"]),
    (["cluster.start=ssd", *ELASTIC], ["cluster.start=ssd", "leave it out"]),
    (["system/provision=none", *ELASTIC], ["system/provision=none", "load_monitor"]),
    (["system/cache=none", *ELASTIC], ["system/cache=none", "load_monitor"]),
    (["system/cache=pool"], ["system/cache=pool", "does nothing", "system/cache=none"]),
    (["system/provision=host"], ["system/provision=host", "does nothing", "system/provision=none"]),
    (["system/scaler=load_monitor", "cluster=blitz_b"], ["system/provision=none"]),
    (["models.count=3"], ["models.count=3", "models=of_trace or models=zipf"]),
    (["trace.path=a\0b"], ["trace.path", "null character"]),
]


def refusal(words: list[str], kind: str = "simulate") -> str:
    return refuses(UserError, "", load_config, words, kind, alone=True)


@pytest.mark.parametrize(("words", "told"), REFUSED, ids=[" ".join(words)[:50] for words, _ in REFUSED])
def test_refused_with_a_sentence(words: list[str], told: list[str]) -> None:
    sentence = refusal(["out=OUT", *words])
    for part in told:
        assert part in sentence


@pytest.mark.parametrize("words", [[], ["out=  "]])
def test_out_is_required(words: list[str]) -> None:
    assert "write out=FOLDER" in refusal(words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["cluster=a100_x2"], "write cluster=local"),
        (["cluster.gpus=4"], "write workers=VALUE"),
        (["workers=0"], "workers=0"),
        (["workers=4", "model.tp=2"], "model.tp=2 cannot be run by realexec"),
        (["system=blitzscale", "workers=4", "model.tp=2"], "one worker each: write model.tp=1"),
        (["system=pipeline", "workers=4", "model.tp=2"], "one worker each: write model.tp=1"),
        (
            ["system=llumnix_base_autoscaled", "workers=2", "migration.into_loading=true"],
            "a worker that loads takes no KV: write migration.into_loading=false",
        ),
        (["engine.preemption=swap"], "real workers, which have no host memory for KV"),
    ],
)
def test_a_real_run_is_refused_what_it_cannot_do(words: list[str], told: str) -> None:
    assert told in refusal(["out=OUT", *words], "realexec")


def test_an_own_objective_is_not_labelled_with_somebody_elses_source() -> None:
    slo = load_config(["out=OUT", "slo.ttft_ms=300"], "simulate").slo
    assert (slo.name, slo.ttft_ms, slo.tpot_ms) == ("custom", 300.0, 150.0)
    assert "command line" in slo.source


@settings(max_examples=15)
@given(
    key=st.sampled_from(["seed=", "engine.step_time=", "journal=", "cluster=", "slo.ttft_ms=", ""]),
    text=st.text(),
)
def test_any_word_is_a_configuration_or_a_sentence(key: str, text: str) -> None:
    word = key + text
    try:
        assert isinstance(load_config(["out=OUT", word], "simulate"), RunConfig)
    except UserError as refused:
        assert "\n" not in str(refused)
