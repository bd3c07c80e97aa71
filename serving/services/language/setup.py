"""Settings of a language model in stages."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.services.language.stage_work import StageWork
from serving.vocabulary.layers import Part
from serving.vocabulary.replica import Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageSetup:
    """``parts``: the model's stages in order.

    ``max_num_seqs``, ``max_num_batched_tokens``: the maximum numbers of requests and of tokens in one round
    of a batch. ``coalesce``: rounds without a decision in between are reported together. If replicas come and
    go, ``prototypes`` describes a new replica of each part and ``work`` its work for a request. Both include
    parts of other cuts if the model may be re-cut. ``kv_layer_bytes``: size of one token's KV in one layer,
    if KV moves from leaving replicas; 0: it does not move. ``live``: replicas work while they load, and their
    KV moves. ``most_layers``: the maximum number of layers in a stage, if the model may be re-cut; 0: it may
    not.
    """

    parts: tuple[Part, ...]
    max_num_seqs: int
    max_num_batched_tokens: int
    coalesce: bool = True
    prototypes: Mapping[Part, Replica] = field(default_factory=dict)
    work: Mapping[Part, StageWork] = field(default_factory=dict)
    kv_layer_bytes: int = 0
    live: bool = False
    most_layers: int = 0
