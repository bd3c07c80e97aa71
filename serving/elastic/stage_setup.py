"""Inputs of stage scaling: the scaler, its period, the bounds and the hosts."""

from collections.abc import Mapping
from dataclasses import dataclass

from serving.elastic.stage_peers import PeerSetup
from serving.protocols.stages import StageScaler
from serving.vocabulary.layers import Part


@dataclass(frozen=True, slots=True)
class StageHosts:
    """The hosts, all alike: host n has GPUs ``first`` to ``first + per_host``.

    ``first`` = n * ``gpus_per_host``. ``memory_bytes``, ``cpu_cores``: of one host.
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

    ``minimum``: replicas of each stage; ``maximum``: of each, ``max_replicas``: of all stages of a model.
    ``cores``: of a new replica, and of those at the start. ``exec_s``: a pass of one request alone on this
    number of cores; ``sizes_bytes``: of the parameters. ``peers``: plans loads from replicas that hold the
    stage; None: all load from their own host's memory or SSD. ``batch_cost``: cost of each request in a pass
    but the longest. ``copies_share``: of a host's memory that copies may use; the invariants report a scaler
    that keeps more.
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
