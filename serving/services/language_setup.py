"""What a language model in stages is made of."""

from dataclasses import dataclass

from serving.services.stage_work import StageWork
from serving.vocabulary.layers import Part
from serving.vocabulary.replica import Replica


@dataclass(frozen=True, slots=True)
class LanguageSetup:
    """``parts``: the stages in order. ``max_num_seqs``, ``max_num_batched_tokens``: of a batch's round.

    ``coalesce``: rounds in which nothing is decided are told together. ``prototypes``: of each stage what a
    new replica is like, and ``work`` what one computes for a request, where replicas come and go.
    ``kv_layer_bytes``: of a token in one layer, where KV moves from replicas that are to go; 0: it stays.
    """

    parts: tuple[Part, ...]
    max_num_seqs: int
    max_num_batched_tokens: int
    coalesce: bool = True
    prototypes: tuple[Replica, ...] = ()
    work: tuple[StageWork, ...] = ()
    kv_layer_bytes: int = 0
