"""One instance that loads beside one that serves, in whole simulated runs: what Figure 15 draws.

The runs are those of ``servetwin simulate system=blitzscale`` with every policy of it and every byte on the
fabric, but for step times (a pass lasts the same whatever is in it) and requests (every prompt is a batch).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from experiments.blitzscale.set_ups import RESERVE
from experiments.common.rates import NOWHERE
from hwmodels.step_times.linear_step import LinearCoefficients, LinearStepModel
from hwmodels.step_times.rows import StepRows
from hwmodels.step_times.step_time import StepLimits
from servetwin.assemble.build import estimates_of
from servetwin.config.compose.compose import load_config
from servetwin.run.prepared import Prepared
from servetwin.run.simulate import execute, prepare
from serving.vocabulary.actions import Action
from serving.vocabulary.events import Event, Loaded
from serving.vocabulary.units import NS_PER_S
from traces.columns import numbers
from traces.workload import Workload

_PROMPT_TOKENS: Final = 16
_SHAPE: Final = {  # layers of Llama3-8B; the parameters before and after them are negligible
    "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16",
    "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 1024, "max_position_embeddings": 8192,
}  # fmt: skip
# One more instance is wanted at the first look, and nothing changes after it.
_LOOK_MS: Final = 5_000
_WORDS: Final = (
    "system=blitzscale", "cluster=blitz_b_10x1", "trace=gamma", "trace.requests=1", "trace.rate_per_s=1",
    f"engine.max_num_batched_tokens={_PROMPT_TOKENS}", "engine.kv_tokens=1000000", *RESERVE,
    "system.instances.prefill_max=2", "system.instances.decode_max=1",
    f"system.instances.monitor_period_ms={_LOOK_MS}", "system.scaler.prefill=[0.000001,0.000002]",
    "system.scaler.scale_down_ms=1000000000", "system.live.slo_ms=0", NOWHERE,
)  # fmt: skip
_LIMITS: Final = StepLimits(256, 1 << 24, 1 << 14)


@dataclass(frozen=True, slots=True)
class Played:
    """A run. Its times are in layer times; at time 0 the new instance has received the first layer.

    finish: the times of the first tokens of the batches that wait at time 0, in the order of their arrival.
    load: the measured load time of a layer. loaded: the time at which the new instance has all layers.
    """

    finish: tuple[float, ...]
    load: float
    loaded: float


@dataclass(slots=True)
class _Seen:
    """A journal that keeps when layers came."""

    layers_ns: dict[int, int] = field(default_factory=dict)
    whole_ns: int = 0

    def write(self, now_ns: int, event: Event, actions: Sequence[Action], counts: Sequence[int] = ()) -> None:
        """One event."""
        if type(event) is Loaded:
            if event.fully_loaded:
                self.whole_ns = now_ns
            else:
                self.layers_ns.setdefault(event.layers, now_ns)


def play(layers: int, load: float, batches: int, scheduler: str, idle: float = 0.5) -> Played:
    """Run one pair: a layer loads in ``load`` layer times, and ``batches`` wait when the first is loaded.

    The old instance runs other batches until ``idle`` layer times after that, without a pause.
    """
    world = _world(layers, scheduler)
    layer_ns = round((world.layers_ns[layers - 1] - world.layers_ns[1]) / (layers - 2) / load)
    idle_ns, pass_ns = world.layers_ns[1] + round(idle * layer_ns), layers * layer_ns
    before = idle_ns // pass_ns  # passes that the old instance has run by then, from their arrival on
    arrivals_ns = [idle_ns % pass_ns] * (before + batches)
    firsts_ns, seen = _run(world.prepared, pass_ns, arrivals_ns)
    zero_ns, came = seen.layers_ns[1], seen.layers_ns
    assert zero_ns == world.layers_ns[1], "what is loaded depends on what is served meanwhile"
    return Played(
        tuple([(at_ns - zero_ns) / layer_ns for at_ns in firsts_ns[before:]]),
        (came[layers - 1] - zero_ns) / (layers - 2) / layer_ns,
        (seen.whole_ns - zero_ns) / layer_ns,
    )


@dataclass(frozen=True, slots=True)
class _PairWorld:
    """What runs of one model and scheduler share. layers_ns: layer -> the time at which it is loaded.

    These times do not depend on the requests. folder: the folder with the file of the model's shape, which
    each run reads again.
    """

    folder: TemporaryDirectory[str]
    prepared: Prepared
    layers_ns: dict[int, int]


@cache
def _world(layers: int, scheduler: str) -> _PairWorld:
    folder = TemporaryDirectory()
    shape = _SHAPE | {"num_hidden_layers": layers}
    Path(folder.name, "config.json").write_text(json.dumps(shape), encoding="utf-8")
    words = (*_WORDS, f"model={folder.name}", f"system/live={scheduler}")
    prepared = prepare(load_config(words, "simulate"))
    return _PairWorld(folder, prepared, _run(prepared, 100 * NS_PER_S, [0, 0])[1].layers_ns)


def _run(prepared: Prepared, pass_ns: int, arrivals_ns: list[int]) -> tuple[list[int], _Seen]:
    """(first tokens by request, what was seen) where every pass over all layers takes ``pass_ns``."""
    lines = LinearCoefficients(
        decode_s=1e-6,
        decode_per_sequence_s=0,
        decode_per_context_token_s=0,
        prefill_s=pass_ns / NS_PER_S,
        prefill_per_token_s=0,
        prefill_per_square_token_s=0,
    )
    step = LinearStepModel(
        coefficients=lines, limits=_LIMITS, measured=_LIMITS, source="as written", error_band="none"
    )
    ((model, hardware),) = prepared.hardware_of_model.items()
    known = {model: replace(hardware, rows=StepRows(step), step=step)}
    count, seen = len(arrivals_ns), _Seen()
    prompts, outputs = np.full(count, _PROMPT_TOKENS), np.ones(count, dtype=np.int64)
    workload = Workload(
        arrival_ns=np.array(arrivals_ns),
        prompt_tokens=prompts,
        output_tokens=outputs,
        name="one pair",
        source="written",
    )
    ready = replace(
        prepared, hardware_of_model=known, estimates=estimates_of(prepared.config, known), workload=workload
    )
    columns = numbers(execute(ready, seen).columns)
    order = columns["request"].argsort()
    return columns["first_token_ns"][order].tolist(), seen
