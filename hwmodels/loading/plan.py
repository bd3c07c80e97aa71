"""The data types of a parameter load: hops, flows to start, units that have arrived, missing units."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Final, NamedTuple

from hwmodels.fabric.flow import PARAMETERS, FlowSpec
from hwmodels.models.load_units import Unit

SOURCE: Final = -1


@dataclass(frozen=True, slots=True)
class Hop:
    """One segment of a load's route. It starts at the source or at the ends of earlier hops.

    Each flow on the hop gets links, weight, cap_bytes_per_s, priority and latency_s, which mean what they
    mean in ``FlowSpec``. A chunk that directly follows another one has no latency. after: number of the hop
    at whose end this hop starts, or ``SOURCE``; with several numbers the hop sends a chunk when it has
    reached the ends of all of them; None means the hop before this one in the list, and the source if this
    is the first. share: the fraction of each chunk's bytes that crosses each of the links.
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
        """The flow that moves ``size_bytes`` over this hop.

        idle: whether the hop was idle before this flow, which then has the hop's latency.
        """
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
    """A flow that the caller starts now. When its last byte has arrived, the caller calls ``finished``.

    chunk: number of the chunk that the flow moves; of the first one if the flow moves several chunks.
    """

    rank: int
    hop: int
    chunk: int
    flow: FlowSpec


class UnitArrival(NamedTuple):
    """Unit number ``unit`` is complete at the end of ``hop``.

    layer: the unit's layer; None if the unit is the embedding or the head.
    """

    hop: int
    unit: int
    layer: int | None


class LoadStep(NamedTuple):
    """What the end of a flow causes: flows that the caller starts, and units that are now complete."""

    sends: tuple[ChunkSend, ...]
    arrivals: tuple[UnitArrival, ...]


@dataclass(frozen=True, slots=True)
class ChunkProgress:
    """How much has arrived at a hop's end: the first ``chunks`` chunks, ``partial_bytes`` of the next one."""

    chunks: int = 0
    partial_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class MissingUnits:
    """The units that are not complete at a hop's end.

    size_bytes: bytes of these units still to be sent; a part of the first unit may have arrived.
    """

    hop: int
    size_bytes: float
    units: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class Stopped:
    """What the caller has to do after hops of a load were stopped.

    aborts: flows in progress on these hops. The caller aborts them in the fabric; then it may report by
    ``delivered`` how many bytes had arrived. lacking: the missing units of each live target that lost its
    source; bytes that ``delivered`` reports later are not subtracted.
    """

    aborts: tuple[ChunkSend, ...]
    lacking: tuple[MissingUnits, ...]


NOTHING: Final = LoadStep((), ())
