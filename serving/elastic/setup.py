"""Inputs of elastic scaling: bounds and rates of every model, the cluster, and the policies."""

from collections.abc import Mapping
from dataclasses import dataclass

from serving.elastic.signals import SignalRules
from serving.live.host import LiveSetup
from serving.parameters.cluster_map import ClusterMap
from serving.parameters.copies import Copies
from serving.protocols.live import LivePolicy
from serving.protocols.live_answers import CheckedLivePolicy
from serving.protocols.provisioning import Provisioner
from serving.protocols.scaling import Arbiter, Scaler
from serving.vocabulary.kv_bytes import NO_KV, KvBytes
from serving.vocabulary.replica import Replica, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """Bounds (fewest, most) on the instances of one model by role, and the rates of one instance.

    ``pass_ns``: duration of a full prefill pass. The other fields are for live scaling only.
    ``size_bytes``: size of the parameters on all GPUs together. ``activation_bytes_per_token``: size of one
    token's activations between two layers. ``max_num_seqs``: the maximum number of requests that decode on
    one instance.
    """

    bounds: Mapping[Role, tuple[int, int]]
    prefill_tokens_per_s: float
    kv_tokens: int
    kv_tokens_per_s: float
    pass_ns: int
    size_bytes: int = 0
    activation_bytes_per_token: int = 0
    kv_bytes: KvBytes = NO_KV
    max_num_seqs: int = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticSetup:
    """The fixed settings; ``prototypes`` and ``limits`` by model.

    ``period_ns``: time between two looks of the load monitor. ``park_ns``: how long parameters stay on
    reclaimed GPUs. ``signals``: when metrics are scraped; None: the scaler reads none. ``grace_ns``: how
    long a drained instance may go on with its requests; None: until they are served. ``keeps_lost_gpus``:
    an instance is lost because its process ended, so that another may start on its GPUs.
    """

    cluster: ClusterMap
    prototypes: Mapping[str, Replica]
    limits: Mapping[str, ModelLimits]
    period_ns: int
    park_ns: int
    signals: SignalRules | None = None
    grace_ns: int | None = None
    keeps_lost_gpus: bool = False


@dataclass(frozen=True, slots=True)
class ElasticPolicies:
    """The deciding policies. ``arbiter``: which instance a model gives up if no GPUs are free; None: none.

    ``live``: which new instances work while they load; None: none.
    """

    scaler: Scaler
    provisioner: Provisioner
    arbiter: Arbiter | None
    live: LivePolicy | None = None


@dataclass(frozen=True, slots=True)
class ElasticParts:
    """All parts of an elastic controller. ``copies``: fresh; no two controllers share them."""

    setup: ElasticSetup
    policies: ElasticPolicies
    copies: Copies


def live_setups(parts: ElasticParts) -> dict[str, LiveSetup]:
    """The live-scaling set-up of each model; empty without a live policy."""
    if parts.policies.live is None:
        return {}
    policy = CheckedLivePolicy(parts.policies.live)
    return {
        model: LiveSetup(
            policy=policy,
            layers=len(parts.setup.prototypes[model].layers),
            activation_bytes_per_token=limits.activation_bytes_per_token,
            prefill_tokens_per_s=limits.prefill_tokens_per_s,
            kv_bytes=limits.kv_bytes,
            max_num_seqs=limits.max_num_seqs,
        )
        for model, limits in parts.setup.limits.items()
    }
