"""Every pair of system/cache and system/provision: refused in one sentence, or instances do load."""

from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest
import yaml

from hwmodels.topology.cluster_file import load_cluster
from servetwin.config.compose.cache_pairs import check_cache_pair
from servetwin.config.compose.checks import check
from servetwin.config.compose.compose import load_config
from servetwin.config.config import PolicyConfig, RunConfig
from servetwin.config.options import CONF_DIR
from servetwin.report.table import shortages
from servetwin.run.simulate import execute, prepare
from serving.vocabulary.errors import UserError

# A burst that one prefill instance takes seconds for, on hosts of one GPU each.
BURST = ("cluster=blitz_b_6x1", "trace=gamma", "trace.requests=40", "trace.rate_per_s=3000")
MODELS = {
    "one": (),
    "several": ("models=zipf", "models.count=2", "models.rate_per_s=3000", "models.requests=40"),
}


def options(group: str) -> dict[str, PolicyConfig]:
    files = (CONF_DIR / "system" / group).glob("*.yaml")
    found = [PolicyConfig(**yaml.safe_load(file.read_text())) for file in files]
    return {one.name: one for one in sorted(found, key=lambda one: one.name)}


CACHES, PROVISIONERS = options("cache"), options("provision")
REFUSED = {("pool", "host"), ("ttl", "host")}  # beside those with none
WITHOUT_LEAST = {("ttl", name) for name in ("multicast", "naive", "one_to_one", "binomial")}


@cache
def base(models: str) -> RunConfig:
    return load_config(["system=blitz_multicast", *BURST, *MODELS[models], "out=unused"], "simulate")


def paired(config: RunConfig, kept: str, provision: str, least: int = 1) -> RunConfig:
    instances = replace(config.system.instances, prefill_min=least, decode_min=least)
    parts = {"cache": CACHES[kept], "provision": PROVISIONERS[provision], "instances": instances}
    return replace(config, system=replace(config.system, **parts))


def with_params(config: RunConfig, group: str, **params: Any) -> RunConfig:
    policy = getattr(config.system, group)
    changed = replace(policy, params=policy.params | params)
    return replace(config, system=replace(config.system, **{group: changed}))


@pytest.mark.parametrize(("kept", "provision"), list(product(CACHES, PROVISIONERS)))
@pytest.mark.parametrize("models", MODELS)
@pytest.mark.parametrize("least", [1, 0])
def test_a_pair_is_refused_or_loads(models: str, least: int, kept: str, provision: str) -> None:
    config = paired(base(models), kept, provision, least)
    refused = (kept, provision) in REFUSED or "none" in (kept, provision)
    if refused or (not least and (kept, provision) in WITHOUT_LEAST):
        with pytest.raises(UserError) as caught:
            check(config)
        told = str(caught.value)
        assert "write " in told and ". " not in told
        assert f"system/cache={kept}" in told or f"system/provision={provision}" in told
        return
    check(config)
    summary = execute(prepare(config)).summary
    assert summary["loads"]["count"] > 0 and summary["requests"]["finished"] == 40
    assert summary["shortages"]["no_copy"] == summary["shortages"]["no_path"] == 0


@pytest.mark.parametrize(
    ("kept", "provision", "params", "least", "told"),
    [
        ("pool", "host", {}, 1, "write system/cache=everywhere or system/provision=host_or_ssd or"),
        ("ttl", "host", {}, 1, "a copy there ends after system.cache.ttl_s=30"),
        ("ttl", "host", {"cache": {"ttl_s": None}}, 0, "no host has a copy at the start"),
        ("ttl", "multicast", {}, 0, "write system.instances.prefill_min=1 or system/cache=pool"),
        # these find copies, or a store
        ("ttl", "host", {"cache": {"ttl_s": None}}, 1, None),
        ("pool", "host", {"cache": {"drop_when_deployed": False}}, 1, None),
        ("pool", "host", {"provision": {"tiers": ["host", "ssd"]}}, 1, None),
        ("pool", "host", {"provision": {"tiers": "ssd"}}, 0, None),
    ],
)
def test_what_is_judged_are_the_values(
    kept: str, provision: str, params: dict[str, dict[str, Any]], least: int, told: str | None
) -> None:
    config = paired(base("one"), kept, provision, least)
    for group, values in params.items():
        config = with_params(config, group, **values)
    with pytest.raises(UserError) if told else nullcontext() as caught:
        check_cache_pair(config)
    assert caught is None or str(told) in str(caught.value)


def test_a_remote_store_serves_where_host_memory_has_nothing() -> None:
    config, name = paired(base("one"), "pool", "host"), "a2_ultragpu_8g"
    assert load_cluster(name).remote is not None
    check_cache_pair(replace(config, cluster=replace(config.cluster, topology=name)))


def test_a_cluster_without_the_store_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = replace(load_cluster("blitz_b"), ssd=None)
    monkeypatch.setattr("servetwin.config.compose.cache_pairs.load_cluster", lambda name: bare)
    pair = paired(base("one"), "pool", "host_or_ssd")
    for config in (pair, with_params(pair, "provision", tiers=["ssd"])):
        with pytest.raises(
            UserError, match=r"write (system/cache=everywhere or )?system/provision=multicast"
        ):
            check_cache_pair(config)
    check_cache_pair(paired(pair, "everywhere", "host_or_ssd"))


def test_a_policy_of_ones_own_is_not_judged() -> None:
    config = paired(base("one"), "pool", "host")
    own = replace(config.system.provision, policy="mine:Provisioner")
    check_cache_pair(replace(config, system=replace(config.system, provision=own)))


def test_a_decision_that_cannot_be_carried_out_names_its_obstacle() -> None:
    """The pool keeps its one copy on host 0, whose only GPU is taken: nothing can load."""
    config = with_params(paired(base("one"), "pool", "host"), "cache", drop_when_deployed=False)
    summary = execute(prepare(config)).summary
    events = [event for event in summary["scale_events"] if event["act"] == "shortage"]
    assert summary["loads"]["count"] == 0 and summary["instances"]["max"] == 2
    assert {event["obstacle"] for event in events} == {"no_copy"}, "no GPU is lacking"
    assert summary["shortages"] == {"no_gpu": 0, "no_copy": len(events), "no_path": 0}
    assert "find no copy of the parameters to load from; " in events[0]["reason"]
    lacking = "GPUs were free, no copy of the parameters was found to load from"
    assert shortages(summary) == [f"instances not started {len(events)} times: {lacking}"]
    looks, told = summary["decisions"]["count"], [(one["role"], one["reason"][:3]) for one in events]
    assert len(events) < looks and len(set(told)) == len(told), "told when it changes, not at every look"
