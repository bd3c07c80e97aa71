"""State in transit between replicas: the flows of each transfer, and the report at its end."""

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from hwmodels.errors import HardwareError
from hwmodels.fabric.fabric import Fabric
from hwmodels.fabric.flow import ACTIVATIONS, KV, FlowSpec
from hwmodels.loading.plan import Hop
from hwmodels.loading.reshard import Share, reshard
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.load_units import Shape
from hwmodels.topology.link import gpu
from hwmodels.topology.topology import Topology
from serving.vocabulary.actions import Send
from serving.vocabulary.events import Sent
from serving.vocabulary.units import NS_PER_S
from simcore.data_plane.channels import bundles, merged
from simcore.data_plane.replica_placement import ReplicaPlacement

# A flow without size, the share of a transfer that it carries, the number of channels it stands for.
_Channels = list[tuple[FlowSpec, float, int]]


class _Transfer:
    """flows: the fabric's number -> bytes of a channel, how many channels it stands for."""

    __slots__ = ("action", "flows")

    def __init__(self, action: Send) -> None:
        self.action = action
        self.flows: dict[int, tuple[float, int]] = {}


class TransferFlows:
    """All transfers in progress, by id."""

    __slots__ = (
        "_bundled", "_channels", "_fabric", "_of_flow", "_placement", "_reshards", "_shapes", "_spines",
        "_topology", "_under_way",
    )  # fmt: skip

    def __init__(
        self,
        topology: Topology,
        fabric: Fabric,
        placement: ReplicaPlacement,
        shapes: Mapping[str, Shape],
        bundled: bool,
    ) -> None:
        self._topology, self._fabric, self._placement, self._shapes = topology, fabric, placement, shapes
        self._bundled = bundled
        self._spines = topology.counts.up_spines
        self._under_way: dict[int, _Transfer] = {}
        self._of_flow: dict[int, _Transfer] = {}
        self._channels: dict[tuple[str, str, int, int, int], _Channels] = {}
        self._reshards: dict[tuple[str, int, int], tuple[Share, ...]] = {}

    def begin(self, now_s: float, action: Send) -> None:
        """Start the transfer: one flow for each pair of ranks, or for several equal pairs."""
        number, sent_bytes = action.transfer, action.size_bytes
        assert number not in self._under_way, f"transfer {number} is under way already"
        if action.layers is not None or action.positions:
            self._placement.require_ends(action)
        channels = self._channels_of(action, action.control_ns)
        transfer = self._under_way[number] = _Transfer(action)
        fabric, of_flow = self._fabric, self._of_flow
        for spec, share, count in channels:
            size_bytes = sent_bytes * share
            flow = fabric.start(spec, now_s, size_bytes)
            transfer.flows[flow] = size_bytes, count
            of_flow[flow] = transfer

    def ended(self, flow: int) -> Sent | None:
        """End a flow; returns the event to report if it was the transfer's last one."""
        transfer = self._of_flow.pop(flow)
        del transfer.flows[flow]
        if transfer.flows:
            return None
        action = transfer.action
        del self._under_way[action.transfer]
        return Sent(action.transfer, action.size_bytes, "")

    def stop(self, now_s: float, number: int, cause: str) -> Sent | None:
        """End a transfer early; None if it ended at this moment."""
        transfer = self._under_way.pop(number, None)
        if transfer is None:
            return None
        return self._given_up(transfer, self._abort(now_s, transfer), cause)

    def _abort(self, now_s: float, transfer: _Transfer) -> float:
        """End all its flows; returns the bytes that have not moved."""
        left_bytes = 0.0
        for flow, (size_bytes, count) in transfer.flows.items():
            left_bytes += (size_bytes - self._fabric.abort(flow, now_s)) * count
            del self._of_flow[flow]
        transfer.flows.clear()
        return left_bytes

    def _given_up(self, transfer: _Transfer, left_bytes: float, cause: str) -> Sent:
        moved_bytes = math.floor(transfer.action.size_bytes - left_bytes)
        return Sent(transfer.action.transfer, max(0, moved_bytes), cause)

    def lose(self, now_s: float, replica: int, cause: str) -> list[Sent]:
        """End all transfers from or to a lost replica."""
        self._channels.clear()
        own = [
            number
            for number, transfer in self._under_way.items()
            if replica in (transfer.action.source, transfer.action.target)
        ]
        return [sent for number in own if (sent := self.stop(now_s, number, cause)) is not None]

    def reroute(self, now_s: float, topology: Topology, links: frozenset[int], cause: str) -> list[Sent]:
        """Reroute transfers that cross these lost links, with their remaining bytes.

        Returns the reports of transfers without another path.
        """
        hit = [
            transfer
            for transfer in self._under_way.values()
            if any(not links.isdisjoint(spec.links) for spec, _, _ in self._channels_of(transfer.action))
        ]
        self._topology = topology
        self._channels.clear()
        given_up: list[Sent] = []
        for transfer in hit:
            left_bytes = self._abort(now_s, transfer)
            try:
                channels = self._channels_of(transfer.action)
            except HardwareError:
                del self._under_way[transfer.action.transfer]
                given_up.append(self._given_up(transfer, left_bytes, cause))
                continue
            for spec, share, count in channels:
                flow = self._fabric.start(spec, now_s, left_bytes * share)
                transfer.flows[flow] = left_bytes * share, count
                self._of_flow[flow] = transfer
        return given_up

    def _channels_of(self, action: Send, control_ns: int = 0) -> _Channels:
        """Its channels, with this time before their first bytes.

        Cached per pair of replicas, unless the number of the transfer selects a spine.
        """
        if self._spines > 1:
            made = self._make_channels(action, action.transfer)
            return _delayed(made, control_ns) if control_ns else made
        source = action.source
        key = action.what, self._placement.part_of[source].model, source, action.target, control_ns
        channels = self._channels.get(key)
        if channels is None:
            if control_ns:
                channels = _delayed(self._channels_of(action), control_ns)
            else:
                channels = self._make_channels(action, 0)
            self._channels[key] = channels
        return channels

    def _make_channels(self, action: Send, spread: int) -> _Channels:
        topology, channels = self._topology, list[Hop]()
        for end in (action.source, action.target):
            if end in self._placement.lost:
                raise HardwareError(f"replica {end} is lost")
        kind, most = KV if action.what == "kv" else ACTIVATIONS, topology.spec.kv
        cap_bytes_per_s = most.bytes_per_s if most is not None and kind == KV else math.inf
        for out, to, share in self._shares(action):
            path = topology.path(gpu(out), gpu(to), spread)
            latency_s = topology.latency_s(path)
            channels.append(
                Hop(path, cap_bytes_per_s=cap_bytes_per_s, latency_s=latency_s, share=float(share))
            )
        groups = bundles(channels) if self._bundled else [[channel] for channel in range(len(channels))]
        hops = [(merged([channels[channel] for channel in group]), len(group)) for group in groups]
        return [(hop.flow(0.0, kind), hop.share, count) for hop, count in hops]

    def _shares(self, action: Send) -> list[tuple[int, int, Fraction]]:
        """(from GPU, to GPU, share): KV by heads, activations in equal parts to every rank of the target.

        The time in which the ranks then gather activations over scale-up links is not modelled.
        """
        source, target = self._placement.gpus_of[action.source], self._placement.gpus_of[action.target]
        if action.what != "kv":
            parts = range(len(target))
            return [(source[part % len(source)], target[part], Fraction(1, len(target))) for part in parts]
        kind = self._placement.part_of[action.source].model, len(source), len(target)
        shares = self._reshards.get(kind)
        if shares is None:
            shape = self._shapes[kind[0]]
            assert isinstance(shape, LlmShape), f"{shape.name} has no KV to be sent"
            shares = self._reshards[kind] = reshard(shape, len(source), len(target))
        return [(source[share.source_rank], target[share.target_rank], share.share) for share in shares]


def _delayed(channels: _Channels, control_ns: int) -> _Channels:
    """The channels of a transfer with this extra latency: the links are free for that time."""
    return [
        (replace(spec, latency_s=spec.latency_s + control_ns / NS_PER_S), share, count)
        for spec, share, count in channels
    ]
