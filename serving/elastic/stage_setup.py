"""Inputs of stage scaling: the scaler, its period, the bounds and the hosts."""

from collections.abc import Mapping
from dataclasses import dataclass

from serving.elastic.stage_peers import PeerSetup
from serving.protocols.stages import StageScaler
from serving.vocabulary.layers import Part


@dataclass(frozen=True, slots=True)
class StageHosts:
    """The hosts, all alike: host n has ``gpus_per_host`` GPUs, from GPU n * ``gpus_per_host`` on.

    ``memory_bytes``, ``cpu_cores``: memory and number of CPU cores of one host.
    """

    count: int
    gpus_per_host: int
    memory_bytes: int
    cpu_cores: int

    def of(self, gpu: int) -> int:
        """The host of a GPU."""
        return gpu // self.gpus_per_host

    def gpus(self, host: int) -> range:
        """The GPUs of a host."""
        return range(host * self.gpus_per_host, (host + 1) * self.gpus_per_host)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageScaling:
    """``scaler`` is called for each model once per ``period_ns``; rates are counted over ``window_ns``.

    ``minimum``, ``maximum``: bounds on the number of replicas of each stage. ``max_replicas``: bound on the
    replicas of all stages of a model together. ``cores``: CPU cores of a new replica and of an initial one.
    ``exec_s``: duration of a pass of one request alone on this number of cores. ``sizes_bytes``: sizes of the
    parameters. ``peers``: plans loads from replicas that hold the stage; None: every replica loads from its
    own host's memory or SSD. ``batch_cost``: what each request but the longest adds to a pass, as a share of
    its own pass. ``copies_share``: the share of a host's memory that copies may use; the invariants report a
    scaler that keeps more.
    """

    scaler: StageScaler
    hosts: StageHosts
    period_ns: int
    window_ns: int
    slo_s: float
    minimum: int
    maximum: int
    max_replicas: int
    cores: int
    exec_s: Mapping[Part, float]
    sizes_bytes: Mapping[Part, int]
    peers: PeerSetup | None = None
    batch_cost: float = 1.0
    copies_share: float = 1.0
