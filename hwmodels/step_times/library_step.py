"""AIConfigurator's library as a step-time model: with what it leaves out, and errors of measured runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.parallelism import Parallelism
from hwmodels.profiles.profile import Curve, Lattice, OpTables
from hwmodels.step_times.aiconfigurator_library import asked_profile
from hwmodels.step_times.op_table_step import OpTableStepModel
from hwmodels.step_times.step_error import StepError, StepErrors

_SOURCE: Final = "measured runs of vLLM with these step times (docs/explanation/SILICON.md)"
# Of the smallest step's 87 us a layer on an H200, reading the weights of a rank of eight takes 10 us, and a
# dozen kernels in a graph some 2 us each at least.
_LEAST_SHARE: Final = 0.25
# Models and splits of one process that are kept: those of a plan of several layouts.
_KEPT: Final = 8
Factors = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryTerms:
    """Constants fitted on measured runs (``python -m benchmarks.silicon``; docs/explanation/SILICON.md).

    ``query_norm_s``: what the library leaves out of a layer with experts whose queries and keys are
    normalised: these norms, which exchange over the ranks if they are over all heads, rotary embedding, and
    quantisation. ``expert_layer_prompt_s``: launches of a layer with experts outside CUDA graphs, in steps
    with prompts. ``latent_graph_s``: what its tables of latent attention have too much per layer in steps
    that decode: they were taken launch by launch, some 12 kernels that vLLM replays as a CUDA graph.
    The others are errors: real steps take between the first and the second factor times the model's. That of
    ``prompts`` is from mean TTFTs, those of steps that only decode, of models without and with experts, are
    from mean TPOTs.
    """

    query_norm_s: float = 25e-6
    latent_graph_s: float = 60e-6
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
    model = OpTableStepModel(replace(profile, tables=_complete(profile.tables, llm, terms)))
    model.errors = terms.errors(llm)
    return model


def _complete(tables: OpTables, llm: LlmShape, terms: LibraryTerms) -> OpTables:
    """With what the library leaves out of layers with experts, and without launches of latent attention."""
    mixtures = llm.moe_layers
    every = mixtures * terms.query_norm_s if llm.qk_norm else 0.0
    prompts = mixtures * terms.expert_layer_prompt_s
    launches = llm.layers * terms.latent_graph_s if llm.latent is not None else 0.0
    if not (every or prompts or launches):
        return tables
    dense = Curve(tables.dense.counts, _plus(tables.dense.seconds, every))
    prefill = tuple(Lattice(lattice.axes, lattice.values + prompts) for lattice in tables.prefill)
    decode = tuple(_without_launches(lattice, launches) for lattice in tables.decode)
    return replace(tables, dense=dense, prefill=prefill, decode=decode)


def _without_launches(lattice: Lattice, launches_s: float) -> Lattice:
    """At least ``_LEAST_SHARE`` of each time stays: the kernels themselves."""
    return Lattice(lattice.axes, np.maximum(lattice.values - launches_s, _LEAST_SHARE * lattice.values))


def _plus(seconds: Sequence[float], more: float) -> tuple[float, ...]:
    return tuple(second + more for second in seconds)
