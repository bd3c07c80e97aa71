"""The data types of a parameter load: hops, chunks to send, arrivals, missing units."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Final, NamedTuple

from hwmodels.fabric.flow import PARAMETERS, FlowSpec
from hwmodels.models.load_units import Unit

SOURCE: Final = -1


@dataclass(frozen=True, slots=True)
class Hop:
    """One segment of the route, from the source or from earlier hops' ends to its own end.

    links, weight, cap_bytes_per_s, priority, latency_s: of each flow on it, as in ``FlowSpec``; a chunk that
    directly follows another pays no latency. after: the hop at whose end it starts (several: it needs a chunk
    from all of them), ``SOURCE`` for the source; None: the hop before it in the list (the source for the
    first). share: of every chunk that crosses each of its links.
    """

    links: tuple[int, ...]
    _: KW_ONLY
    weight: float = 1.0
    cap_bytes_per_s: float = math.inf
    priority: int = 0
    latency_s: float = 0.0
    after: int | tuple[int, ...] | None = None
    share: float = 1.0

    def flow(self, size_bytes: float, kind: str = PARAMETERS, idle: bool = True) -> FlowSpec:
        """The flow that moves ``size_bytes`` over it; ``idle``: no flow went directly before."""
        return FlowSpec(
            self.links,
            size_bytes,
            kind=kind,
            weight=self.weight,
            cap_bytes_per_s=self.cap_bytes_per_s,
            priority=self.priority,
            latency_s=self.latency_s if idle else 0.0,
        )


class ChunkSend(NamedTuple):
    """A flow to start now; after its last byte call ``finished`` with rank, hop and chunk.

    chunk: the first one it brings, if single chunks are not reported.
    """

    rank: int
    hop: int
    chunk: int
    flow: FlowSpec


class UnitArrival(NamedTuple):
    """Unit number ``unit`` is complete at the end of ``hop``; layer: None for embedding and head."""

    hop: int
    unit: int
    layer: int | None


class LoadStep(NamedTuple):
    """What follows from a flow's end: flows to start, units that are complete."""

    sends: tuple[ChunkSend, ...]
    arrivals: tuple[UnitArrival, ...]


@dataclass(frozen=True, slots=True)
class ChunkProgress:
    """What is at a hop's end: the first ``chunks`` chunks and ``partial_bytes`` of the next."""

    chunks: int = 0
    partial_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class MissingUnits:
    """What a hop's end lacks: ``size_bytes`` of ``units``, the first of which may be partly there."""

    hop: int
    size_bytes: float
    units: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class Stopped:
    """The result of a stop.

    aborts: flows in progress, which the caller aborts in the fabric (and then may report by ``delivered``);
    lacking: one entry for each live target that lost its source, before any such report.
    """

    aborts: tuple[ChunkSend, ...]
    lacking: tuple[MissingUnits, ...]


NOTHING: Final = LoadStep((), ())
