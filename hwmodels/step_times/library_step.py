"""AIConfigurator's library as a step-time model: with what it leaves out, and errors of measured runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.parallelism import Parallelism
from hwmodels.profiles.profile import Curve, Lattice, OpTables
from hwmodels.step_times.aiconfigurator_library import asked_profile
from hwmodels.step_times.op_table_step import OpTableStepModel
from hwmodels.step_times.step_error import StepError, StepErrors

_SOURCE: Final = "measured runs of vLLM with these step times (docs/SILICON.md)"
# Models and splits of one process that are kept: those of a plan of several layouts.
_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class Shown:
    """What runs show of steps: a real one takes between the first and the second factor times the model's."""

    prompts: tuple[float, float]
    decodes: tuple[float, float]

    def errors(self) -> StepErrors:
        """By phase. A step with both counts as one with prompts: they decide the TTFTs that were measured."""
        prompts, decodes = (
            StepError(min(low, 1.0), max(high, 1.0), "measured runs", _SOURCE)
            for low, high in (self.prompts, self.decodes)
        )
        return StepErrors(prompts, decodes, prompts)


@dataclass(frozen=True, slots=True)
class LibraryTerms:
    """Constants fitted on measured runs (``python -m benchmarks.silicon``; docs/SILICON.md).

    ``expert_layer_s``: what the library leaves out of a layer with experts: norms and rotary embedding of
    queries and keys, choice of experts, quantisation of what goes into them. ``expert_layer_prompt_s``: its
    launches outside CUDA graphs, in steps with prompts. ``dense``, ``experts``: errors of models without and
    with experts, from measured over simulated mean TTFT (prompts) and TPOT (decodes).
    """

    expert_layer_s: float = 20e-6
    expert_layer_prompt_s: float = 180e-6
    dense: Shown = Shown((0.59, 2.43), (0.93, 1.29))
    experts: Shown = Shown((0.76, 1.79), (0.89, 1.42))


# Those of runs; fits put others here (benchmarks.silicon).
TERMS = LibraryTerms()


def library_model(gpu: str, llm: LlmShape, parallelism: Parallelism) -> OpTableStepModel:
    """The library's times of ``llm`` on ``gpu`` (a catalogue name), complete and with their error."""
    return _model(gpu, llm, parallelism, TERMS)


@lru_cache(_KEPT)
def _model(gpu: str, llm: LlmShape, parallelism: Parallelism, terms: LibraryTerms) -> OpTableStepModel:
    profile = asked_profile(gpu, llm, parallelism)
    model = OpTableStepModel(replace(profile, tables=_complete(profile.tables, llm.moe_layers, terms)))
    model.errors = (terms.dense if llm.experts is None else terms.experts).errors()
    return model


def _complete(tables: OpTables, layers: int, terms: LibraryTerms) -> OpTables:
    """With what the library leaves out of ``layers`` with experts."""
    if not layers:
        return tables
    every, prompts = layers * terms.expert_layer_s, layers * terms.expert_layer_prompt_s
    dense = Curve(tables.dense.counts, _plus(tables.dense.seconds, every))
    prefill = tuple(Lattice(lattice.axes, lattice.values + prompts) for lattice in tables.prefill)
    return replace(tables, dense=dense, prefill=prefill)


def _plus(seconds: Sequence[float], more: float) -> tuple[float, ...]:
    return tuple(second + more for second in seconds)
