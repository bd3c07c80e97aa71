"""Inputs of a data plane: the cluster, the models, and the initial replicas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hwmodels.loading.starting import Starting
from hwmodels.loading.startup import StartUp
from hwmodels.models.load_units import Shape
from hwmodels.topology.topology import Topology
from serving.vocabulary.actions import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlaneSetup:
    """Fixed inputs: the cluster, model shapes by name, loader, start-up, and the initial replicas.

    model_of, gpus_of: the model and the GPUs of each replica, from replica 0 on. layers_of: layers
    [first, last) of each replica that does not hold all layers.
    loader: a name of loaders.yaml. contexts: CUDA contexts created in advance (None: one for every GPU);
    connected: whether the GPUs of each replica have their connections. bundled: False makes every channel of
    a load or transfer a flow of its own, even if channels are alike and share no link. starting: how
    instances start; None: as ``start_up`` declares.
    """

    topology: Topology
    shapes: Mapping[str, Shape]
    model_of: Sequence[str]
    gpus_of: Sequence[tuple[int, ...]]
    loader: str
    start_up: StartUp
    layers_of: Mapping[int, Span] = field(default_factory=dict)
    contexts: int | None = None
    connected: bool = False
    bundled: bool = True
    starting: Starting | None = None
