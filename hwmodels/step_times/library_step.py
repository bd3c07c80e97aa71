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
Factors = tuple[float, float]


@dataclass(frozen=True, slots=True)
class LibraryTerms:
    """Constants fitted on measured runs (``python -m benchmarks.silicon``; docs/SILICON.md).

    ``expert_layer_s``: what the library leaves out of a layer with experts: norms and rotary embedding of
    queries and keys, choice of experts, quantisation of what goes into them. ``expert_layer_prompt_s``: its
    launches outside CUDA graphs, in steps with prompts.
    The others are errors: real steps take between the first and the second factor times the model's. That of
    ``prompts`` is from mean TTFTs, those of steps that only decode, of models without and with experts, are
    from mean TPOTs.
    """

    expert_layer_s: float = 25e-6
    expert_layer_prompt_s: float = 180e-6
    prompts: Factors = (0.49, 1.83)
    decodes: Factors = (0.94, 1.28)
    expert_decodes: Factors = (0.88, 1.88)

    def errors(self, llm: LlmShape) -> StepErrors:
        """By phase. A step with both counts as one with prompts: they decide the TTFTs that were measured."""
        prompts, decodes = (
            StepError(low, high, "measured runs", _SOURCE)
            for low, high in (self.prompts, self.decodes if llm.experts is None else self.expert_decodes)
        )
        return StepErrors(prompts, decodes, prompts)


# Those of runs; fits put others here (benchmarks.silicon).
TERMS = LibraryTerms()


def library_model(gpu: str, llm: LlmShape, parallelism: Parallelism) -> OpTableStepModel:
    """The library's times of ``llm`` on ``gpu`` (a catalogue name), complete and with their error."""
    return _model(gpu, llm, parallelism, TERMS)


@lru_cache(_KEPT)
def _model(gpu: str, llm: LlmShape, parallelism: Parallelism, terms: LibraryTerms) -> OpTableStepModel:
    profile = asked_profile(gpu, llm, parallelism)
    model = OpTableStepModel(replace(profile, tables=_complete(profile.tables, llm.moe_layers, terms)))
    model.errors = terms.errors(llm)
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
