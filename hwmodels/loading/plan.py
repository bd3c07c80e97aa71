"""The terms of a parameter load: hops, what is to be sent, what has arrived, what is missing."""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

from hwmodels.fabric.flow import PARAMETERS, FlowSpec
from hwmodels.loading.units import Unit

SOURCE: Final = -1


@dataclass(frozen=True, slots=True)
class Hop:
    """One stretch of the way, from where everything lies or from earlier hops' ends to its own end.

    links, weight, cap_bytes_per_s, priority, latency_s: of each flow on it, as in ``FlowSpec``; a chunk that
    follows at once on another pays no latency. after: the hop at whose end it starts (several: it needs a
    chunk from all of them), ``SOURCE`` for where everything lies; None: the hop before it in the list (the
    source for the first). share: of every chunk that crosses each of its links.
    """

    links: tuple[int, ...]
    weight: float = 1.0
    cap_bytes_per_s: float = math.inf
    priority: int = 0
    latency_s: float = 0.0
    after: int | tuple[int, ...] | None = None
    share: float = 1.0

    def flow(self, size_bytes: float, kind: str = PARAMETERS, idle: bool = True) -> FlowSpec:
        """What the fabric is asked for to move ``size_bytes`` over it; ``idle``: nothing went just before."""
        return FlowSpec(
            self.links,
            size_bytes,
            kind,
            weight=self.weight,
            cap_bytes_per_s=self.cap_bytes_per_s,
            priority=self.priority,
            latency_s=self.latency_s if idle else 0.0,
        )


class ChunkSend(NamedTuple):
    """A flow to start now; once its last byte is there, ``finished`` is to be told rank, hop and chunk.

    chunk: the first one it brings, of several where nobody waits for each of them.
    """

    rank: int
    hop: int
    chunk: int
    flow: FlowSpec


class UnitArrival(NamedTuple):
    """Unit number ``unit`` is whole at the end of ``hop``; layer: None for embedding and head."""

    hop: int
    unit: int
    layer: int | None


class LoadStep(NamedTuple):
    """What follows from a flow's end: flows to start, units that are there."""

    sends: tuple[ChunkSend, ...]
    arrivals: tuple[UnitArrival, ...]


@dataclass(frozen=True, slots=True)
class ChunkProgress:
    """What lies at a hop's end: the first ``chunks`` chunks and ``partial_bytes`` of the next."""

    chunks: int = 0
    partial_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class MissingUnits:
    """What a hop's end lacks: ``size_bytes`` of ``units``, the first of which may be there in part."""

    hop: int
    size_bytes: float
    units: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class Stopped:
    """What a stop leaves behind.

    aborts: flows under way, which the caller aborts in the fabric (and then may tell ``delivered``); lacking:
    one entry for each target that lost its source and still lives, before anything is told.
    """

    aborts: tuple[ChunkSend, ...]
    lacking: tuple[MissingUnits, ...]


NOTHING: Final = LoadStep((), ())
