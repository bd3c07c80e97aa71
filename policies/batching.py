"""Which requests a replica computes in its next pass.

ChunkedPrefill follows the vLLM v1 scheduler, PrefillFirst the v0 scheduler (vLLM, Apache-2.0). Tests compare
both with recorded vLLM schedules (tests/policies/test_vllm_schedules.py and test_vllm_v0_schedules.py). Both
preempt by recompute, newest request first.
"""

from policies.passes import ChunkedPasses, PromptPasses
from serving.protocols.batch import Batch, ReplicaView


class ChunkedPrefill:
    """Decodes first, then prompt chunks up to a token budget, all in one step (vLLM v1).

    ``max_num_batched_tokens`` per step, ``max_num_seqs`` admitted requests. With ``reserve_full_prompt`` a
    request is admitted only when all its known tokens fit into free memory, not only its first chunk (vLLM
    0.19: scheduler_reserve_full_isl, on by default).
    """

    def __init__(
        self, max_num_seqs: int, max_num_batched_tokens: int, reserve_full_prompt: bool = False
    ) -> None:
        if not 1 <= max_num_seqs <= max_num_batched_tokens:
            raise ValueError("chunked prefill needs 1 <= max_num_seqs <= max_num_batched_tokens")
        self._passes = ChunkedPasses(max_num_seqs, max_num_batched_tokens, reserve_full_prompt)

    def choose(self, view: ReplicaView) -> Batch | None:
        """Take running requests in order, then queued ones while budget, sequence slots and memory last."""
        return self._passes.choose(view)


class PrefillFirst:
    """Whole prompts before any decode (vLLM v0).

    A prompt longer than ``max_num_batched_tokens`` runs alone; admission leaves the watermark free. With
    ``decode_spare_block`` a request goes on decoding only if a block is free at its turn, needed or not, as
    in vLLM v0. Without it the request goes on as long as it has the blocks it needs.
    """

    def __init__(
        self, max_num_seqs: int, max_num_batched_tokens: int, decode_spare_block: bool = False
    ) -> None:
        if max_num_seqs < 1 or max_num_batched_tokens < 1:
            raise ValueError("prefill-first needs max_num_seqs and max_num_batched_tokens of at least 1")
        self._passes = PromptPasses(max_num_seqs, max_num_batched_tokens, int(decode_spare_block))

    def choose(self, view: ReplicaView) -> Batch | None:
        """A prefill pass if the queue's head fits, else a decode pass."""
        return self._passes.choose(view)
