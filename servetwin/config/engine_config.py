"""The configuration of one serving engine: the software imitated, its scheduler, memory and overhead."""

from dataclasses import dataclass
from typing import Final

from hwmodels.models.precision import KV_FORMATS
from servetwin.config import readers
from servetwin.config.key import COUNT, NOT_NEGATIVE, POSITIVE, Range, key
from servetwin.config.readers import (
    CHUNKED_PREFILL,
    DECODE_INSTANCES,
    LOADING_INSTANCES,
    MODELS_THAT_DECODE,
    PREFILL_FIRST,
    PROFILE,
    SWAP,
)
from servetwin.config.vllm_defaults import USAGE_CONTEXTS

KV_CACHE_DTYPES: Final = ("auto", *KV_FORMATS)
RESERVES: Final = ("max_new_tokens", "oracle", "mean")
STEP_TIMES: Final = (
    "auto",
    "whole_step",
    "op_table",
    "linear",
    "calibrated_roofline",
    "roofline",
    "aiconfigurator",
)
# What happens to the KV of preempted requests: dropped and recomputed, or kept in host memory.
PREEMPTIONS: Final = ("recompute", "swap")
RECOMPUTE: Final = PREEMPTIONS[0]
# GiB of host memory per GPU: --swap-space of vLLM 0.1.7, whose host blocks have the GPU blocks' size.
SWAP_SPACE_GIB: Final = 4.0
# The cap that was the default until outputs ran at their own length (docs/contributing/decisions/0024).
EXPECTED_NEW_TOKENS: Final = 2048
# At 3, four of five choices are the first expert's, if each token may choose it once.
MAX_EXPERT_SKEW: Final = 3.0
# A step takes milliseconds: larger numbers are in another unit.
OVERHEAD_S: Final = Range(low=0, high=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadConfig:
    """The time that the engine adds to the operations of a step, and its source."""

    step_s: float = key("seconds added to every step", within=OVERHEAD_S)
    per_layer_s: float = key("seconds per layer of the model, added to every step", within=OVERHEAD_S)
    per_sequence_s: float = key("seconds per sequence of a step", within=OVERHEAD_S)
    cuda_graphs: bool = key("small steps are computed at the next captured size, idle rows included")
    source: str = key("where the overhead's numbers come from")
    error_s: float | None = key(
        "error of a fitted step overhead; without it the range takes a factor of 2",
        default=None,
        within=OVERHEAD_S,
        omit=None,
        read_by=(readers.STEP_TIME_RANGE,),
    )
    per_sequence_error_s: float | None = key(
        "error of a fitted overhead per sequence",
        default=None,
        within=OVERHEAD_S,
        omit=None,
        read_by=(readers.STEP_TIME_RANGE,),
    )
    per_output_token_s: float = key(
        "seconds per step and token that decoding sequences have generated (vLLM before 0.2)",
        default=0.0,
        within=OVERHEAD_S,
    )
    per_logit_s: float = key(
        "seconds per vocabulary entry and sequence of a step with top-p (`trace.top_p`)",
        default=0.0,
        within=OVERHEAD_S,
        omit=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEndConfig:
    """What the server does around its engine, per request and per token, and its source."""

    way_in_s: float = key(
        "seconds from the end of a request's preparation to the engine", default=0.0, within=OVERHEAD_S
    )
    request_s: float = key(
        "seconds that an API server process is busy with each request; others wait",
        default=0.0,
        within=OVERHEAD_S,
    )
    prompt_token_s: float = key(
        "seconds that it is busy besides for each prompt token (tokeniser)", default=0.0, within=OVERHEAD_S
    )
    way_out_s: float = key(
        "seconds from a token in the engine to the same token at the client", default=0.0, within=OVERHEAD_S
    )
    running_s: float = key(
        "seconds that each request decoding on the instance adds to the way out",
        default=0.0,
        within=OVERHEAD_S,
    )
    api_server_count: int = key("API server processes of an instance", default=1, within=COUNT)
    error_s: float | None = key(
        "error of a fitted front end; without it the range takes a factor of 2",
        default=None,
        within=OVERHEAD_S,
        omit=None,
    )
    source: str = key("where the front end's numbers come from", default="none")


WITHOUT_FRONT_END: Final = FrontEndConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """One serving engine: the software and version imitated, its scheduler and its memory."""

    name: str = key("the chosen option")
    software: str = key("the imitated software; a profile must be of the same", read_by=(MODELS_THAT_DECODE,))
    version: str = key("its version; a profile must be of the same", read_by=(MODELS_THAT_DECODE,))
    batcher: str = key("the batcher that `engine_default` selects", read_by=(MODELS_THAT_DECODE,))
    max_num_seqs: int = key(
        "most requests admitted at once on a replica",
        within=COUNT,
        read_by=(MODELS_THAT_DECODE,),
    )
    max_num_batched_tokens: int = key(
        "tokens of a step (chunked) or of a batch of prompts (prefill first)",
        within=COUNT,
        read_by=(MODELS_THAT_DECODE,),
    )
    usage_context: str = key(
        "sets, with the GPU, the two limits of `vllm_v1`: `openai_api_server` (`vllm serve`) "
        "or `llm_class` (a script with all its requests at once)",
        default=USAGE_CONTEXTS[0],
        choices=USAGE_CONTEXTS,
        omit=USAGE_CONTEXTS[0],
        read_by=(MODELS_THAT_DECODE,),
    )
    reserve_full_prompt: bool = key(
        "a request is admitted when all its known tokens fit into free memory; false: when "
        "its first chunk does",
        default=True,
        read_by=(
            MODELS_THAT_DECODE,
            CHUNKED_PREFILL,
        ),
    )
    asynchronous: bool = key(
        "vLLM's `--async-scheduling`: a step is chosen while the previous one runs, so its "
        "events count one step later; simulations only",
        read_by=(MODELS_THAT_DECODE,),
    )
    prefix_caching: bool = key(
        "only tokens that no KV block holds are computed "
        "([PREFIX_CACHING](../how-to/PREFIX_CACHING.md)); simulations only",
        read_by=(MODELS_THAT_DECODE,),
    )
    decode_spare_block: bool = key(
        "a request decodes only while a block is free at its turn, needed or not (vLLM v0: "
        "`can_append_slots`); false: while it has those it needs",
        default=False,
        read_by=(
            MODELS_THAT_DECODE,
            PREFILL_FIRST,
        ),
    )
    block_tokens: int = key("tokens of a KV block", default=16, within=COUNT, read_by=(MODELS_THAT_DECODE,))
    watermark: float = key(
        "share of the blocks kept free at admission (prefill first)",
        default=0.0,
        within=Range(low=0, high=1, open_high=True),
        read_by=(MODELS_THAT_DECODE,),
    )
    reserved_blocks: int = key(
        "blocks that are counted but not usable; vLLM's null block",
        default=0,
        within=NOT_NEGATIVE,
        read_by=(MODELS_THAT_DECODE,),
    )
    kv_tokens: int | None = key(
        "KV memory of a replica in tokens, reserved blocks included, as vLLM logs it; null: what "
        "weights and reserve leave",
        default=None,
        within=COUNT,
        read_by=(MODELS_THAT_DECODE,),
    )
    kv_cache_dtype: str = key(
        "number format of the KV cache (vLLM's `--kv-cache-dtype`); `auto`: the checkpoint's, else "
        "the model's",
        default="auto",
        choices=KV_CACHE_DTYPES,
        omit="auto",
        read_by=(MODELS_THAT_DECODE, readers.SIMULATION),
    )
    gpu_memory_utilization: float = key(
        "share of each GPU that the engine may use", default=0.9, within=Range(low=0, high=1, open_low=True)
    )
    reserve_activation_bytes: int | None = key(
        "bytes per GPU kept free of KV; null: what vLLM's profiling keeps "
        "([HOW_FAR_OFF](../explanation/HOW_FAR_OFF.md#kv-memory)), else the catalogue's "
        "number",
        default=None,
        within=NOT_NEGATIVE,
    )
    max_new_tokens: int | None = key(
        "output cap of requests whose trace gives none; null: the memory and the context that "
        "the prompt leaves. If prompt + cap exceed a replica's KV memory, the request is "
        "rejected ([decision "
        "0024](../contributing/decisions/0024-outputs-have-the-traces-length.md))",
        default=None,
        within=COUNT,
        read_by=(MODELS_THAT_DECODE,),
    )
    max_model_len: int | None = key(
        "longest context, prompt and output, in tokens; null: the model's. A longer request "
        "is rejected ([METRICS](../reference/METRICS.md#which-requests-count))",
        default=None,
        within=Range(low=2),
        omit=None,
        read_by=(MODELS_THAT_DECODE,),
    )
    reserve: str = key(
        "output tokens for which decode instances reserve memory in advance: `max_new_tokens` "
        "(its cap, else `engine.expected_new_tokens`), `mean` (of the trace, at most its "
        "cap) or `oracle` (its true length)",
        default="max_new_tokens",
        choices=RESERVES,
        read_by=(
            MODELS_THAT_DECODE,
            DECODE_INSTANCES,
        ),
    )
    step_time: str = key(
        "`whole_step` (a folder of measured steps), `op_table` (a profile), `linear` (fitted "
        "to the profile, else the catalogue's), `calibrated_roofline` (fitted to a profile), "
        "`roofline` (datasheet), `aiconfigurator` (NVIDIA's measured operations), `auto`: "
        "the first there is of profile, catalogue coefficients, `aiconfigurator` (quantised "
        "models and mixtures), `roofline` ([STEP_TIMES](../explanation/STEP_TIMES.md))",
        default="auto",
        choices=STEP_TIMES,
        read_by=(MODELS_THAT_DECODE,),
    )
    step_time_tables: str | None = key(
        "the library and tables of `aiconfigurator`, written by the run; a run from its config.yaml "
        "refuses others. null: those installed",
        default=None,
        omit=None,
        read_by=(MODELS_THAT_DECODE, readers.SIMULATION),
    )
    profile: str | None = key(
        "a file from `servetwin profile import`, or a folder of measured whole steps "
        "([PROFILES](../how-to/PROFILES.md))",
        default=None,
        read_by=(MODELS_THAT_DECODE,),
    )
    profile_force: bool = key(
        "use a profile that is stale or of another GPU, model or engine",
        default=False,
        read_by=(
            MODELS_THAT_DECODE,
            PROFILE,
        ),
    )
    data_parallel_size: int = key(
        "engines that run their steps together and share a mixture's experts ([MOE](../explanation/MOE.md))",
        default=1,
        within=COUNT,
        read_by=(MODELS_THAT_DECODE,),
    )
    enable_expert_parallel: bool = key(
        "whole experts on each GPU instead of a part of every expert",
        default=False,
        read_by=(MODELS_THAT_DECODE,),
    )
    expert_skew: float = key(
        "popularity of the experts: the r-th is chosen in proportion to r^-`expert_skew`; 0: all alike",
        default=0.0,
        within=Range(low=0, high=MAX_EXPERT_SKEW),
        read_by=(MODELS_THAT_DECODE,),
    )
    loader: str = key(
        "how parameters are read if `cluster.start` is not `warm`: `direct` (the path's rate), "
        "`safetensors` or `sllm` (`hwmodels/catalogue/loaders.yaml`)",
        default="safetensors",
        read_by=(LOADING_INSTANCES,),
    )
    start_up: str = key(
        "start-up time of a new instance beside its parameters: `none`, `blitzscale`, `vllm` "
        "(rough) or `own_workers` (`hwmodels/catalogue/loaders.yaml`)",
        default="vllm",
        read_by=(LOADING_INSTANCES,),
    )
    overhead: OverheadConfig = key(
        "the time that the engine adds to the operations of a step; `engine.overhead=FILE` "
        "takes all keys from a file, as `servetwin profile fit` prints it, and single keys "
        "beside it override it",
        read_by=(MODELS_THAT_DECODE,),
    )
    front_end: FrontEndConfig = key(
        "the way of a request to the engine and of its tokens to the client; `engine.front_end=none`: "
        "requests are handed to the engine; `engine.front_end=FILE`: as `realexec calibrate URL` measured it "
        "([METRICS](../reference/METRICS.md#at-the-engine-and-at-the-client)); simulations only",
        omit=WITHOUT_FRONT_END,
        read_by=(MODELS_THAT_DECODE, readers.SIMULATION),
    )
    exact: bool = key("one event per step instead of coalesced runs; same result, slower", default=False)
    preemption: str = key(
        "KV of a preempted request: `recompute`, or `swap` [to host "
        "memory](../explanation/MIGRATION.md#preemption-by-swap) and back (vLLM 0.1 to 0.6)",
        default=RECOMPUTE,
        choices=PREEMPTIONS,
        omit=RECOMPUTE,
        read_by=(MODELS_THAT_DECODE,),
    )
    swap_space_gib: float = key(
        "GiB of host memory per GPU for swapping (vLLM 0.1.7's `--swap-space`); when full, "
        "requests are recomputed",
        default=SWAP_SPACE_GIB,
        within=POSITIVE,
        read_by=(
            MODELS_THAT_DECODE,
            SWAP,
        ),
        omit_with="preemption",
    )
    expected_new_tokens: int = key(
        "output tokens assumed for a request without a cap; it cuts no output",
        default=EXPECTED_NEW_TOKENS,
        within=COUNT,
        omit=EXPECTED_NEW_TOKENS,
        read_by=(MODELS_THAT_DECODE,),
    )
