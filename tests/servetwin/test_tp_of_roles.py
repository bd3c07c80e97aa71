"""Prefill and decode instances of unequal tensor parallelism: GPUs, memory, steps, KV between them."""

import json

import pytest

from hwmodels.errors import HardwareError
from servetwin.assemble.hardware import hardware_of
from servetwin.config.compose.compose import load_config
from servetwin.config.config import RunConfig
from servetwin.run.simulate import evaluated, prepare
from serving.vocabulary.errors import UserError
from tests.worlds.faulted import play_both

SPLIT = (
    "system=distserve_full", "model=llama3_8b", "cluster=blitz_a_1x8", "trace=azure_conv_like",
    "trace.requests=60", "trace.rate_per_s=6", "system.instances.prefill=2", "system.instances.decode=1",
)  # fmt: skip
UNEQUAL = (*SPLIT, "model.prefill.tp=2", "model.decode.tp=4")


def config(*words: str) -> RunConfig:
    return load_config([*words, "out=none"], "simulate")


def test_each_role_has_its_gpus_and_memory() -> None:
    prepared = prepare(config(*UNEQUAL))
    assert [(one.role, one.gpus) for one in prepared.replicas] == [
        ("prefill", (0, 1)), ("prefill", (2, 3)), ("decode", (4, 5, 6, 7)),
    ]  # fmt: skip
    equal = (hardware_of(config(*SPLIT[:3], f"model.tp={tp}")) for tp in (2, 4))
    two, four = (hardware["llama3_8b"].kv_blocks for hardware in equal)
    assert [one.kv_blocks for one in prepared.replicas] == [two, two, four]
    assert prepared.estimates.models[0].kv_tokens == four * 16


def test_decode_steps_are_those_of_decode_instances() -> None:
    unequal = evaluated(config(*UNEQUAL))
    two = evaluated(config(*SPLIT, "model.tp=2"))
    for more in ((), ("model.tp=2",)):
        named = evaluated(config(*SPLIT, "model.prefill.tp=2", "model.decode.tp=2", *more))
        assert (named["tpot_ms"], named["ttft_ms"]) == (two["tpot_ms"], two["ttft_ms"])
    assert unequal["tpot_ms"]["mean"] < two["tpot_ms"]["mean"]


def test_a_run_with_unequal_roles_holds_all_laws() -> None:
    """Invariants after every event, coalesced as exact, replay without a difference; KV goes by its bytes."""
    played = play_both([*UNEQUAL, "uncertainty=off"])
    assert len(played.ends.finished_ids) == played.arrived == 60
    sent = [json.loads(line) for line in played.checked.lines if '["send",' in line]
    assert sent


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("model.prefill.tp=2",), "needs a static system with prefill and decode apart"),
        (("system=blitz_multicast", "cluster=blitz_a", "model.decode.tp=2"), "needs a static system"),
        ((*SPLIT[:3], "model.decode.tp=2"), "write system.instances.prefill=N"),
        ((*SPLIT, "model.prefill.tp=4", "model.decode.tp=4"), "need 12 GPUs, and cluster=blitz_a_1x8 has 8"),
        ((*SPLIT, "model.decode.tp=3"), "tp=3 does not divide the 32 query and 8 KV heads"),
        ((*SPLIT, "models=zipf", "model.decode.tp=2"), "write models=one"),
    ],
)
def test_what_does_not_fit_is_refused(words: tuple[str, ...], told: str) -> None:
    with pytest.raises((UserError, HardwareError), match=told):
        prepare(config(*words))
