"""A profile: what was measured of one model on one kind of GPU, and where the numbers come from."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
ALL_REDUCE_LABEL: Final = "all-reduce of "
NOISE_LABEL: Final = "noisy: "
NOT_JUDGED: Final = "the error between the measured points was not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What a profile is valid for and who measured it.

    ``gpu`` and ``llm`` are catalogue names; ``files`` are (name, sha256) of what was imported; ``notes``
    state what was assumed because it was not measured. ``error_band``: errors of whole steps on grid lines
    that were withheld from the model (hwmodels.step_times.held_out).
    """

    gpu: str
    llm: str
    tp: int
    engine: str
    engine_version: str
    precision: str
    source: str
    licence: str
    files: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()
    error_band: str = NOT_JUDGED

    @property
    def labels(self) -> tuple[str, ...]:
        """The notes for a run's header: where its all-reduces come from, if not from this engine."""
        return tuple(note for note in self.notes if note.startswith(ALL_REDUCE_LABEL))

    @property
    def noise(self) -> tuple[str, ...]:
        """Reasons not to trust the measurement; empty if the machine was quiet, as far as known."""
        return tuple(note.removeprefix(NOISE_LABEL) for note in self.notes if note.startswith(NOISE_LABEL))


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds of one step over a count, at increasing ``counts``."""

    counts: tuple[int, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Lattice:
    """Values at the points of a product of increasing axes; NaN if not measured."""

    axes: tuple[tuple[int, ...], ...]
    values: Floats


@dataclass(frozen=True, slots=True)
class ExpertTable:
    """Seconds per step of the experts of all layers on one rank, with the gate and the choice of experts.

    ``expert_tp``: parts that each expert is cut into, ``expert_ep``: parts that the set of them is cut into
    (``hwmodels.models.parallelism``). Axes: tokens of all ranks, experts of this rank that any token chose.
    """

    expert_tp: int
    expert_ep: int
    lattice: Lattice


@dataclass(frozen=True, slots=True)
class Exchange:
    """Seconds per step of the exchange of ``ranks`` engines around the experts, over the tokens of all."""

    ranks: int
    curve: Curve
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTables:
    """Seconds per step of the whole model on one rank: what every layer does is multiplied by the layers.

    ``dense`` over tokens: matrix products, norms, rotary embedding, activations, token embedding.
    ``head`` over sequences: the language-model head and the sampler. ``all_reduce`` over tokens, all layers
    (None: tp is 1, or not measured). Attention lattices are in seconds; a table may need several of them when
    it was measured on several grids. Axes:

    * ``decode``: sequences, context tokens of each
    * ``prefill``: new tokens, cached tokens (a lattice with cached 0 only: later chunks are differences)
    * ``mixed``: new tokens, cached tokens, decoding sequences, context tokens of each; empty: not measured
    * ``skew``: new tokens (0: a decode step), decoding sequences; the values are alpha: a batch of unequal
      contexts takes t(mean) + alpha * (t(largest) - t(mean)); None: not measured
    """

    dense: Curve
    head: Curve
    all_reduce: Curve | None
    decode: tuple[Lattice, ...]
    prefill: tuple[Lattice, ...]
    mixed: tuple[Lattice, ...]
    skew: Lattice | None
    experts: tuple[ExpertTable, ...] = ()
    exchange: tuple[Exchange, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """Stamped operation tables of one (GPU, model, tensor-parallel size)."""

    stamp: Stamp
    tables: OpTables
