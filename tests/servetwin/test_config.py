"""Composition: defaults, precedence, literal paths, round trip, and that nothing leaks between calls."""

import dataclasses
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hypothesis import given, settings
from hypothesis import strategies as st

import policies
from servetwin.config import options
from servetwin.config.compose import option_tree
from servetwin.config.compose.compose import load_config, option_groups
from servetwin.config.compose.key_list import key_list
from servetwin.config.compose.resolved import load_resolved, resolved_yaml
from servetwin.config.config import PolicyConfig
from servetwin.config.policy.make import make_policy
from serving.vocabulary.errors import UserError
from serving.vocabulary.estimates import Estimates
from serving.vocabulary.layers import Part
from tests.worlds.made_up_results import simulated
from tests.worlds.refusals import refuses

STRANGE_PATHS = [
    "out dir",
    "a=b,c",
    "{x: 1}",
    "'quoted'",
    'say "hi"',
    "$HOME/${seed}/${oc.env:HOME}",
    "réplique/日本",
    "[1,2]",
    "null",
    "seed=1,2",
    "range(1,3)",
    "a#b: c",
    "line\nbreak",
    "\udcff not utf-8",
    "+plus",
    "~tilde",
    " spaces around ",
]


def test_defaults_of_a_simulation() -> None:
    config = simulated()
    assert (config.engine.name, config.engine.max_num_seqs, config.engine.max_num_batched_tokens) == (
        "vllm_v1",
        256,
        2048,
    )
    assert config.system.name == "vllm"
    assert config.system.dispatch.policy == "policies.dispatch:LeastOutstanding"
    assert config.system.admission.name == "none"
    assert (config.model.name, config.model.tp) == ("llama3_8b", 1)
    assert (config.cluster.name, config.cluster.gpus) == ("a100_x8", 8)
    assert (config.trace.name, config.trace.limit, config.trace.tokens_scale) == ("azure_conv", None, 1.0)
    assert (config.slo.ttft_ms, config.slo.tpot_ms) == (450.0, 150.0)
    assert (config.seed, config.journal, config.overwrite, config.workers) == (0, False, False, None)


def test_the_configuration_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        simulated().seed = 1  # type: ignore[misc]


def test_a_real_run_has_workers_and_they_are_its_cluster() -> None:
    config = load_config(["out=OUT", "workers=3"], "realexec")
    assert (config.workers, config.cluster.name, config.cluster.gpus) == (3, "local", 3)
    assert config.model.name == "tiny_llama"


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ((), 30),
        (("trace=diurnal",), 30),
        (("trace=diurnal", "trace.duration_s=9"), None),
        (("trace.requests=200",), None),
        (("trace.window_s=60",), None),
        (("trace.requests=null",), 30),
        (("trace.requests=200", "trace.limit=20"), 20),
    ],
)
def test_a_real_run_keeps_its_first_30_requests_unless_the_end_is_stated(
    words: tuple[str, ...], limit: int | None
) -> None:
    assert load_config(["out=OUT", *words], "realexec").trace.limit == limit


def test_engine_default_takes_the_batcher_of_the_engine() -> None:
    v1, v0 = simulated(), simulated("engine=vllm_v0", "engine.max_num_seqs=64")
    assert v1.system.batcher.name == "chunked_prefill"
    assert v0.system.batcher.name == "prefill_first"
    params = {"max_num_seqs": 64, "max_num_batched_tokens": 4096, "decode_spare_block": True}
    assert v0.system.batcher.params == params
    assert simulated("engine.batcher=prefill_first").system.batcher.name == "prefill_first"
    chosen = simulated("engine=vllm_v0", "system/batcher=chunked_prefill")
    assert chosen.system.batcher.name == "chunked_prefill"


def test_policy_parameters_are_set_in_short_or_long_form() -> None:
    short = simulated("system/admission=token_bucket", "system.admission.rate_per_s=2.5")
    long = simulated("system/admission=token_bucket", "system.admission.params.rate_per_s=2.5")
    assert short == long
    assert short.system.admission.params == {"rate_per_s": 2.5, "burst": 1}


@pytest.mark.parametrize("gpus", [1, 7, 8, 8192])
def test_clusters_of_any_size_are_made_on_request(gpus: int) -> None:
    cluster = simulated(f"cluster=a100_x{gpus}").cluster
    assert (cluster.name, cluster.gpu, cluster.gpus) == (f"a100_x{gpus}", "a100_80g", gpus)


@pytest.mark.parametrize(
    ("word", "path", "value"),
    [
        ("trace.limit=1e3", "trace.limit", 1000),
        ("seed=2.5e2", "seed", 250),
        ("trace.limit=null", "trace.limit", None),
        ("trace.tokens_scale=2", "trace.tokens_scale", 2.0),
        ("trace.utilization=.5", "trace.utilization", 0.5),
        ("engine.overhead.step_s=1e-3", "engine.overhead.step_s", 0.001),
        ("journal=True", "journal", True),
        ("engine.step_time='linear'", "engine.step_time", "linear"),
        ("engine.kv_tokens=4096", "engine.kv_tokens", 4096),
        ("estimates=artefact", "estimates", "artefact"),
        ("system.instances.both_max=4", "system.instances.both_max", 4),
        ("system.instances.keep_parameters_ms=5", "system.instances.keep_parameters_ms", 5.0),
    ],
)
def test_values_are_typed(word: str, path: str, value: object) -> None:
    found: object = simulated(word)
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("path", STRANGE_PATHS)
def test_paths_are_taken_literally_and_survive_the_round_trip(path: str, tmp_path: Path) -> None:
    config = load_config([f"out={path}", f"trace.path={path}"], "simulate")
    assert (config.out, config.trace.path) == (path, path)
    file = tmp_path / "config.yaml"
    file.write_text(resolved_yaml(config), encoding="utf-8")
    assert load_resolved(file) == config


@settings(max_examples=40)
@given(out=st.text(min_size=1).filter(lambda text: text.strip() and "\0" not in text), seed=st.integers(0))
def test_config_yaml_reads_back_equal(out: str, seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    config = dataclasses.replace(BASE, out=out, seed=seed)
    file = tmp_path_factory.mktemp("round") / "config.yaml"
    file.write_text(resolved_yaml(config), encoding="utf-8")
    assert load_resolved(file) == config


BASE = load_config(["out=OUT"], "simulate")
ELASTIC_GROUPS = ("system/scaler", "system/provision", "system/cache", "system/live")


def test_a_real_run_reads_back_equal(tmp_path: Path) -> None:
    config = load_config(["out=OUT", "workers=4", "trace.rate_per_s=1e-5"], "realexec")
    (tmp_path / "config.yaml").write_text(resolved_yaml(config), encoding="utf-8")
    assert load_resolved(tmp_path / "config.yaml") == config
    assert "workers" not in resolved_yaml(BASE)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": "abc"}, ["seed", "an integer"]),
        ({"seed": True}, ["seed", "an integer"]),
        ({"sed": 1}, ["unknown key sed"]),
        ({"engine": 3}, ["engine", "mapping"]),
        ({"model": {"name": "x"}}, ["model.tp", "missing"]),
        (
            {"slo": {"name": "x", "ttft_ms": float("nan"), "tpot_ms": 1, "source": ""}},
            ["slo.ttft_ms", "number"],
        ),
        ({"kind": None}, ["kind"]),
    ],
)
def test_an_edited_config_yaml_is_refused_by_key_and_file(
    change: dict[str, object], words: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(resolved_yaml(BASE)) | change), encoding="utf-8")
    with pytest.raises(UserError) as refused:
        load_resolved(file)
    for word in [*words, str(file)]:
        assert word in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"a: [", b"\xff\xfe\xfa", b"just text"])
def test_a_file_that_is_no_config_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(content)
    refuses(UserError, r"config\.yaml", load_resolved, file)
    refuses(UserError, "cannot be read", load_resolved, tmp_path / "nothing.yaml")


def test_hydra_is_left_as_it_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVETWIN_CACHE", "off")
    option_tree._cached_merge.cache_clear()
    assert not GlobalHydra.instance().is_initialized()
    simulated()
    with pytest.raises(UserError):
        simulated("system/admission=token_bucket")
    assert not GlobalHydra.instance().is_initialized()
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        before = GlobalHydra.instance().hydra
        simulated()
        assert GlobalHydra.instance().hydra is before


@pytest.fixture
def own_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "conf"
    shutil.copytree(options.CONF_DIR, folder)
    monkeypatch.setattr(options, "CONF_DIR", folder)
    return folder


def test_a_system_may_override_the_engine_and_the_user_wins(own_conf: Path) -> None:
    text = (own_conf / "system" / "vllm.yaml").read_text().replace("name: vllm", "name: older")
    text = text.replace("  - _self_", "  - override /engine@_global_.engine: vllm_v0\n  - _self_")
    (own_conf / "system" / "older.yaml").write_text(text)
    assert simulated("system=older").engine.name == "vllm_v0"
    assert simulated("system=older", "engine=vllm_v1").engine.name == "vllm_v1"
    assert simulated("system=older", "engine=vllm_v1").system.batcher.name == "chunked_prefill"


def test_a_policy_of_the_package_is_one_class_and_one_file(
    own_conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_dispatch.py").write_text(
        "class Sticky:\n"
        "    def __init__(self, turns: int, random):\n        self.got = turns, random\n"
        "    def dispatch(self, request, fleet):\n        return 0, 'the first'\n"
    )
    monkeypatch.setattr(policies, "__path__", [*policies.__path__, str(tmp_path)])
    (own_conf / "system" / "dispatch" / "sticky.yaml").write_text(
        "name: sticky\npolicy: policies.my_dispatch:Sticky\nparams: {turns: 3}\n"
    )
    config = simulated("system/dispatch=sticky", "system.dispatch.turns=5")
    assert make_policy("system/dispatch", config.system.dispatch, random=7, unused=1).got == (5, 7)


def test_a_broken_option_file_is_told_in_one_sentence(own_conf: Path) -> None:
    (own_conf / "model" / "odd.yaml").write_text("name: odd\ntp: many\n")
    with pytest.raises(UserError, match=r"option files .*tp") as refused:
        simulated("model=odd")
    assert "\n" not in str(refused.value)


def test_a_system_file_that_lacks_a_policy_is_told_what_to_write(own_conf: Path) -> None:
    text = (own_conf / "system" / "blitz_multicast.yaml").read_text()
    (own_conf / "system" / "mine.yaml").write_text(
        text.replace("  - live: none\n", "").replace("name: blitz_multicast", "name: mine")
    )
    with pytest.raises(
        UserError, match=r"system=mine chooses no option of system/live: write '- live: OPTION'"
    ):
        simulated("system=mine", "cluster=blitz_b")


@pytest.mark.parametrize(
    ("group", "option"),
    [
        (group, option)
        for group, options in option_groups().items()
        if group.startswith("system/")
        for option in options
    ],
)
def test_every_policy_option_makes_its_policy(group: str, option: str) -> None:
    extra = ["system.admission.rate_per_s=2"] if option == "token_bucket" else []
    if group in ELASTIC_GROUPS and option != "none":
        extra = ["system=serverlessllm", "cluster=blitz_b"]
        extra += ["system/cache=everywhere"] if option == "host" else []
        extra += ["system.instances.split=false"] if option == "chiron" else []
    if option in ("adaptive_pd", "convertible"):
        extra = [f"system={'llumnix_v2' if option == 'adaptive_pd' else 'tokenscale'}", "cluster=blitz_b"]
    if group == "system/migration":
        extra = ["cluster=blitz_b", *(["system=distserve_full"] if option == "defragment" else [])]
    if group == "system/stages" and option != "none":
        extra = ["system=pipeline", "cluster=quart"]
    chosen = getattr(simulated(f"{group}={option}", *extra).system, group.partition("/")[2])
    if group in (*ELASTIC_GROUPS, "system/migration", "system/stages") and option in ("none", "fixed"):
        assert (chosen.policy, chosen.params) == ("", {})
        return
    known = {
        "random": Random(0),
        "estimates": Estimates((), ""),
        "sizes_bytes": {Part("m", 0, 4): 8},
        "hosts": 2,
    }
    known["ttft_slo_ms"] = 450.0
    assert make_policy(group, chosen, **known) is not None


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("system.scaler.ways=[cancel_drain]", "ways", ["cancel_drain"]),
        ("system.scaler.ways=[cancel_drain, mutate]", "ways", ["cancel_drain", "mutate"]),
        ("system.scaler.ways=[]", "ways", []),
        ("system.scaler.prefill=[0.25,1]", "prefill", [0.25, 1]),
        ("system.scaler.params.prefill=[.5,7e-1]", "prefill", [0.5, 0.7]),
    ],
)
def test_a_list_is_written_in_brackets(word: str, key: str, value: list[object], tmp_path: Path) -> None:
    config = simulated("system=blitz_multicast", "cluster=blitz_b", word)
    assert config.system.scaler.params[key] == value
    (tmp_path / "config.yaml").write_text(resolved_yaml(config), encoding="utf-8")
    assert load_resolved(tmp_path / "config.yaml") == config


def test_help_lists_every_parameter_a_policy_has() -> None:
    """As the user writes it, with its default; batchers' follow the engine and are not listed."""
    text = key_list("simulate")
    assert "system/admission=token_bucket: rate_per_s=VALUE burst=1" in text
    assert "system/cache=ttl: ttl_s=30.0 since=load host_gb=null max_models=null" in text
    assert "prefill=[0.5,0.7]" in text and "ways=[]" in text and "${" not in text
    assert "models=zipf: count=16 " in text and "models=of_trace: count=16 shapes=null\n" in text
    for size in ("split=false", "size=full", "prefill=null", "both_min=1", "monitor_period_ms=100.0"):
        assert f"system.instances.{size} " in text
    assert "models=zipf" in key_list("realexec")


def test_null_is_for_parameters_whose_policy_takes_it() -> None:
    config = simulated("system=serverlessllm", "cluster=blitz_b", "system.cache.ttl_s=null")
    assert config.system.cache.params["ttl_s"] is None
    config = simulated("system=serverlessllm", "cluster=blitz_b", "system.cache.host_gb=64")
    assert config.system.cache.params["host_gb"] == 64.0


STATIC = (
    "pipeline", "quart", "infless", "inferline", "cocktail", "vllm", "vllm_full", "vllm_half", "round_robin",
    "infaas_pp", "llumnix_base", "llumnix",
)  # fmt: skip
SYSTEMS = [name for name in option_groups()["system"] if name not in STATIC]
COLOCATED = tuple(f"{one}_autoscaled" for one in ("round_robin", "infaas_pp", "llumnix_base", "llumnix"))


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_file_is_named_as_its_option_and_chooses_every_policy(name: str) -> None:
    system = simulated(f"system={name}", "cluster=blitz_b").system
    assert system.name == name and system.instances.split == (name not in COLOCATED)
    assert system.elastic == (system.provision.name != "none") == (system.cache.name != "none")


def admission_of(policy: str, params: dict[str, Any]) -> PolicyConfig:
    return PolicyConfig(name="x", policy=policy, params=params)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (admission_of("policies.nowhere:X", {}), ["cannot be found", "module:Class"]),
        (admission_of("policies.dispatch:Nobody", {}), ["cannot be found"]),
        (admission_of("", {}), ["names no class", "module:Class"]),
        (
            admission_of("os:system", {}),
            ["outside this package", "write system/admission=module:Class"],
        ),
        (
            admission_of("policies.admission:TokenBucket", {"speed": 1}),
            ["'speed'", "rate_per_s, burst"],
        ),
        (
            admission_of("policies.admission:TokenBucket", {"rate_per_s": 1.0}),
            ["burst"],
        ),
        (
            admission_of("policies.admission:TokenBucket", {"rate_per_s": -1.0, "burst": 1}),
            ["rate_per_s"],
        ),
    ],
)
def test_a_policy_that_cannot_be_made_is_refused(policy: PolicyConfig, words: list[str]) -> None:
    with pytest.raises(UserError) as refused:
        make_policy("system/admission", policy)
    for word in ["system/admission=x", *words]:
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("words", "ttft_ms"),
    [
        (["model=llama3_8b"], 450),
        (["model=qwen2_5_72b"], 1250),
        (["model=llama2_70b"], 1250),
        (["slo=blitzscale_8b", "model=qwen2_5_72b"], 450),
        (["model=qwen2_5_72b", "slo.ttft_ms=700"], 700),
    ],
)
def test_the_objective_follows_the_model_unless_it_is_given(words: list[str], ttft_ms: float) -> None:
    assert load_config([*words, "cluster=a100_x8", "out=OUT"], "simulate").slo.ttft_ms == ttft_ms


def test_what_real_workers_compute_with_is_kept_and_is_no_simulations(tmp_path: Path) -> None:
    words = ["out=OUT", "model=smollm2_135m", "model.checkpoint=some folder", "model.dtype=bfloat16"]
    config = load_config(words, "realexec")
    assert (config.model.checkpoint, config.model.dtype) == ("some folder", "bfloat16")
    (tmp_path / "config.yaml").write_text(resolved_yaml(config), encoding="utf-8")
    assert load_resolved(tmp_path / "config.yaml") == config
    assert "dtype" not in resolved_yaml(load_config(["out=OUT"], "realexec"))
    for word in words[2:]:
        refuses(
            UserError,
            "read only by real workers; leave it out",
            load_config,
            ["out=OUT", word],
            "simulate",
            alone=True,
        )
    with pytest.raises(UserError, match=r"model\.dtype=float16 is unknown: write one of float32, bfloat16"):
        load_config(["out=OUT", "model.dtype=float16"], "realexec")
