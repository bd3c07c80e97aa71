"""What a language model in stages is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.services.stage_work import StageWork
from serving.vocabulary.layers import Part
from serving.vocabulary.replica import Replica


@dataclass(frozen=True, slots=True)
class LanguageSetup:
    """``parts``: the stages in order. ``max_num_seqs``, ``max_num_batched_tokens``: of a batch's round.

    ``coalesce``: rounds in which nothing is decided are told together. ``prototypes``: of each part that a
    replica may have what a new one is like, and ``work`` what one computes for a request, where replicas come
    and go; parts of other cuts than ``parts`` too where the model may be cut anew. ``kv_layer_bytes``: of a
    token in one layer, where KV moves from replicas that are to go; 0: it stays. ``live``: replicas work
    while they load; their KV moves. ``most_layers``: of a stage, where the model may be cut anew; 0: it
    stays.
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
