"""The roofline rungs: every operation runs at a share of peak compute or of peak memory bandwidth.

With declared shares it is the datasheet rung; ``roofline_fit`` finds the shares from measured tables.
"""

from dataclasses import dataclass, replace

from hwmodels.errors import HardwareError
from hwmodels.gpus.gpu import Gpu
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.precision import FORMATS
from hwmodels.step_times.all_reduce import NO_ALL_REDUCE, AllReduce, RankTimes, StepAllReduce
from hwmodels.step_times.roofline_attention import attention_rates
from hwmodels.step_times.step_error import ROUGH, StepErrors, all_off_by, all_reduce_errors, off_by
from hwmodels.step_times.step_time import Interplay, Piece, StepLimits

# Limits of the model: it has no measured grid, so these only exclude nonsense.
MAX_DECODE_SEQUENCES = 1024
MAX_PREFILL_TOKENS = 32_768
ERROR_BAND = (
    "+-25..40 %: efficiencies are declared, nothing is fitted, and a real engine adds its own overhead"
)
FITTED_ERROR_BAND = (
    "2..11 % mean on held-out lines of six tables (A100, RTX 4090, RTX PRO 6000) for steps of one phase; "
    "steps of prompts and decodes together 22..27 %, too fast; a real engine adds its own overhead"
)
# As factors: 40 %, and for a fitted one the sentences above; its p95 on six tables is at most 16 %.
DECLARED_ERRORS = all_off_by(0.4, "assumed", "declared shares of the datasheet's peaks, +-25..40 %")
_FITTED = off_by(
    0.16, "assumed", "shares fitted to a profile: p95 16 % on held-out lines of the worst of six tables"
)
FITTED_ERRORS = StepErrors(
    _FITTED, _FITTED, _FITTED.beside(off_by(0.37, "assumed", "mixed steps up to 27 % too fast", too_slow=0.0))
)


@dataclass(frozen=True, slots=True)
class Efficiencies:
    """Achieved share of peak; norms, rotary embedding and activations are inside the compute share.

    ``compute`` and ``memory`` hold for the dense part, ``attention_compute`` for the attention of prompt
    chunks, ``attention_memory`` for that of decoding sequences (None: the share of the dense part), and
    ``step_s`` seconds are added to every step. With the defaults the sum of measured A100 operations
    (Llama-3-8B, Llama-2-7b, Qwen-72B) is met within 14-17 % (decode) and 6-8 % (prefill) on average, decode
    always too fast.
    """

    compute: float = 0.6
    memory: float = 0.8
    attention_compute: float | None = None
    attention_memory: float | None = None
    step_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("compute", "memory", "attention_compute", "attention_memory"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value <= 1.0:
                raise HardwareError(
                    f"{name} efficiency {value} is not a share of peak; write a number in (0, 1]"
                )
        if not 0.0 <= self.step_s < float("inf"):
            raise HardwareError(
                f"step_s={self.step_s} is not a time; write 0 or a positive number of seconds"
            )

    @property
    def of_attention(self) -> tuple[float, float]:
        """Shares of compute and of memory in attention."""
        compute, memory = self.attention_compute, self.attention_memory
        return self.compute if compute is None else compute, self.memory if memory is None else memory


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineStepModel:
    """Rates of one replica, all its tensor-parallel ranks working; built by ``roofline_step_model``."""

    layers_weight_read_s: float
    layers_compute_s_per_token: float
    head_weight_read_s: float
    head_compute_s_per_sequence: float
    all_reduce: StepAllReduce
    kv_read_s_per_token: float
    attention_compute_s_per_square_token: float
    step_s: float
    limits: StepLimits
    source: str
    error_band: str
    labels: tuple[str, ...] = ()
    errors: StepErrors = ROUGH
    kv_read_s_per_sequence: float = 0.0
    attention_compute_s_per_new_token: float = 0.0

    @property
    def interplay(self) -> Interplay | None:
        """None: the attention of a mixed step is the sum of its parts."""
        return None

    def dense_s(self, prefill_tokens: int, prefill_sequences: int, decode_sequences: int) -> float:
        """The head runs on the last token of each sequence only; all-reduces overlap with nothing."""
        tokens = prefill_tokens + decode_sequences
        sequences = prefill_sequences + decode_sequences
        alone_s = (
            self.step_s
            + max(self.layers_weight_read_s, self.layers_compute_s_per_token * tokens)
            + max(self.head_weight_read_s, self.head_compute_s_per_sequence * sequences)
        )
        if self.all_reduce is NO_ALL_REDUCE:  # called for every prompt of a simulation
            return alone_s
        all_reduce_s, all_reduce_s_per_token = self.all_reduce.line(tokens)
        return alone_s + all_reduce_s + all_reduce_s_per_token * tokens

    def decode_attention(self, decode_sequences: int) -> tuple[Piece, ...]:
        """Reading the stored KV once, at the memory's rate."""
        fixed_s = decode_sequences * self.kv_read_s_per_sequence
        return (Piece(self.limits.total_context(decode_sequences), fixed_s, self.kv_read_s_per_token),)

    def prefill_attention_s(self, new_tokens: int, cached_tokens: int) -> float:
        """Causal pairs at the compute rate, or reading the chunk's KV if that is slower (short chunks)."""
        squares = new_tokens * (new_tokens + 2 * cached_tokens)
        compute_s = self.attention_compute_s_per_square_token * squares
        compute_s += self.attention_compute_s_per_new_token * new_tokens
        read_s = self.kv_read_s_per_token * (cached_tokens + new_tokens) + self.kv_read_s_per_sequence
        return max(compute_s, read_s)


DEFAULT_EFFICIENCIES = Efficiencies()


def efficiencies_of(gpu: Gpu) -> Efficiencies:
    """The catalogue's declaration for this GPU, or its declaration for all GPUs."""
    share = gpu.compute_efficiency
    return DEFAULT_EFFICIENCIES if share is None else Efficiencies(compute=share)


def roofline_step_model(
    gpu: Gpu,
    llm: LlmShape,
    tp: int,
    *,
    all_reduce: AllReduce,
    efficiencies: Efficiencies = DEFAULT_EFFICIENCIES,
    fitted_to: str | None = None,
) -> RooflineStepModel:
    """Build the rates for ``llm`` split over ``tp`` of ``gpu``; ``fitted_to``: the source of the shares."""
    llm.require_tp(tp)
    flops_per_s = gpu.flops_per_s * tp
    bytes_per_s = gpu.memory_bandwidth_bytes_per_s * tp
    compute, memory = efficiencies.compute, efficiencies.memory
    attention_compute, attention_memory = efficiencies.of_attention
    rates = attention_rates(gpu, llm, tp, compute=attention_compute, memory=attention_memory)
    of_links = (label,) if (label := all_reduce.of(tp).label) else ()
    head = llm.embedding_parameters
    model = RooflineStepModel(
        layers_weight_read_s=llm.dense_product_bytes(tp) / (bytes_per_s * memory),
        layers_compute_s_per_token=_compute_s_per_token(gpu, llm, tp * compute),
        head_weight_read_s=head * llm.bytes_per_parameter / (bytes_per_s * memory),
        head_compute_s_per_sequence=2 * head / (flops_per_s * compute),
        all_reduce=all_reduce.of_step(llm, tp),
        kv_read_s_per_token=rates.read_s_per_token,
        kv_read_s_per_sequence=rates.read_s_per_sequence,
        attention_compute_s_per_square_token=rates.square_s,
        attention_compute_s_per_new_token=rates.new_token_s,
        step_s=efficiencies.step_s,
        limits=_limits(gpu, llm, tp),
        source=_source(gpu, efficiencies, all_reduce.of(tp) if tp > 1 else None, fitted_to),
        error_band=ERROR_BAND if fitted_to is None else FITTED_ERROR_BAND,
        labels=(*of_links, *_unmeasured(gpu, fitted_to), *_widened(gpu, llm)),
        errors=DECLARED_ERRORS if fitted_to is None else FITTED_ERRORS,
    )
    of_all_reduce = all_reduce_errors(
        of_links, model.all_reduce.seconds, lambda n: model.dense_s(n, 0, 0), (MAX_PREFILL_TOKENS, 256)
    )
    return replace(model, errors=model.errors.beside(of_all_reduce))


def _compute_s_per_token(gpu: Gpu, llm: LlmShape, share: float) -> float:
    """Seconds of the products of all layers for a token, at the rates of the numbers that they take."""
    attention, mlp = (gpu.flops_in(FORMATS[name].computes) for name in _stored(llm))
    of_attention, of_mlps = llm.dense_products
    if attention == mlp:
        return 2 * (of_attention + of_mlps) / (mlp * share)
    return 2 * (of_attention / attention + of_mlps / mlp) / share


def _stored(llm: LlmShape) -> tuple[str, str]:
    return llm.formats.attention, llm.formats.mlp


def _widened(gpu: Gpu, llm: LlmShape) -> tuple[str, ...]:
    """The label of products that take narrower numbers elsewhere, and have no faster rate on this GPU."""
    slow = [
        name
        for name in dict.fromkeys(_stored(llm))
        if FORMATS[name].bits < 16 and gpu.flops_in(FORMATS[name].computes) == gpu.flops_per_s
    ]
    return tuple(f"products with {name} weights run at the 16-bit rate of {gpu.name}" for name in slow)


def _unmeasured(gpu: Gpu, fitted_to: str | None) -> tuple[str, ...]:
    """The label of a GPU on which nothing was measured, by its datasheet alone."""
    if fitted_to is not None or not gpu.unmeasured:
        return ()
    return (f"steps of {gpu.name} are a roofline by its datasheet: none was measured on it",)


def _source(gpu: Gpu, efficiencies: Efficiencies, all_reduce: RankTimes | None, fitted_to: str | None) -> str:
    shares = f"efficiency {efficiencies.compute:.3g} compute, {efficiencies.memory:.3g} memory"
    if fitted_to is not None:
        attention = "{:.3g} compute, {:.3g} memory".format(*efficiencies.of_attention)
        shares += f", attention {attention}, {efficiencies.step_s * 1e3:.3g} ms a step"
    links = f"; all-reduce: {all_reduce.source}" if all_reduce else ""
    origin = "declared" if fitted_to is None else f"fitted to {fitted_to}"
    name = "roofline" if fitted_to is None else "calibrated roofline"
    return f"{name}: {gpu.source}; {shares} ({origin}){links}"


def _limits(gpu: Gpu, llm: LlmShape, tp: int) -> StepLimits:
    """The limits; contexts end when the memory beside the weights is full of different tokens."""
    free_bytes = gpu.memory_bytes * tp - llm.weight_bytes
    token_bytes = llm.kv_copies(tp) * llm.kv_bytes_per_token
    if free_bytes < token_bytes:
        raise HardwareError(
            f"{llm.name} ({llm.weight_bytes / 1e9:.1f} GB of weights) does not fit into {tp} x {gpu.name} "
            f"({gpu.memory_bytes * tp / 1e9:.1f} GB); write a larger model.tp, a smaller model or another "
            "cluster.gpu"
        )
    return StepLimits(MAX_DECODE_SEQUENCES, free_bytes // token_bytes, MAX_PREFILL_TOKENS)
