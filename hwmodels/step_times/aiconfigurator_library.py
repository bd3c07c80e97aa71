"""Operation times of a model, asked from the library ``aiconfigurator-core`` before a run and kept as tables.

The library interpolates operations that NVIDIA measured (Apache-2.0). Nothing but times of operations is
asked: neither its TTFT, nor its corrections, nor the measured runs that it ships.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np

from hwmodels.errors import HardwareError
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.parallelism import Parallelism
from hwmodels.models.precision import Precision
from hwmodels.profiles.profile import Curve, Lattice, OpTables, Profile, Stamp
from hwmodels.step_times.aiconfigurator_config import LIBRARY, library_config, unasked_parts
from hwmodels.step_times.expert_times import ExpertTimes, SharedExperts

# Catalogue names -> the library's names of systems that have tables for vLLM.
SYSTEMS: Final = {
    "a100_80g": "a100_sxm", "b200": "b200_sxm", "b300": "b300_sxm", "gb200": "gb200", "gb300": "gb300",
    "h100": "h100_sxm", "h200": "h200_sxm", "l40s": "l40s", "rtx_pro_6000": "rtx_pro_6000_server",
}  # fmt: skip
ENGINE: Final = "vllm"
LICENCE: Final = "Apache-2.0"
# Up to here it is asked: twice vLLM's largest default of prompt tokens in a step, its largest of sequences.
MOST_TOKENS: Final = 32_768
MOST_SEQUENCES: Final = 2_048
# Every count up to the first is asked; above, one per tile of matrix rows, within which times hardly change.
EVERY_COUNT: Final = 256
TILE_TOKENS: Final = 64
# Neighbours of an attention lattice differ by this ratio. What lies between is interpolated on ratios to a
# form of work (hwmodels.step_times.op_table); between the points, steps that decode are within 2 % and steps
# with a prompt within 5 % of what the library itself says (tests/hwmodels/test_aiconfigurator_library.py).
RATIO: Final = 1.35
SHORTEST_CONTEXT: Final = 16
_S_PER_MS: Final = 1e-3
_VERSION: Final = (
    "current"  # the newest whole set of tables of a system; without it, hundreds of files are read
)
_MOST_ERROR: Final = 200
# Ends of its names of what depends on context (a latent's projections are inside), and of the head.
_ATTENTION: Final = ("attention", "mla_block", "gdn_scan", "gdn_recurrence")
_HEAD: Final = "logits_gemm"
# Its names of what engines in data parallel do together.
_ROUTED: Final = ("moe", "moe_pre_dispatch", "moe_post_dispatch", "moe_overlap")
# Up to so many tokens vLLM computes shared experts beside the routed ones, in a stream of their own, and the
# library knows such steps as decode steps (VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD).
BESIDE_TOKENS: Final = 256
# The popularity of experts in its tables of vLLM.
_SKEW: Final = "experts are chosen by a power law of 1.2"
# The library's words for number formats (its GEMMQuantMode, MoEQuantMode, KVCacheQuantMode).
_MATRICES: Final = {
    "bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "nvfp4",
    "int4": "int4_wo", "int8": "int8_wo",
}  # fmt: skip
_EXPERTS: Final = {
    "bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4",
    "int4": "int4_wo", "mxfp4": "w4a16_mxfp4",
}  # fmt: skip
_KV: Final = {"bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8"}
# A table that stands in for one that is missing, for weights of the same width.
_STAND_INS: Final = {"fp8": "fp8_block", "fp8_block": "fp8"}
# GPUs with tensor cores for FP4; the others widen the weights to 16 bits first.
_FP4_CORES: Final = frozenset({"b200", "b300", "gb200", "gb300", "rtx_pro_6000"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the library is asked for: a model in the form of a config.json, and how it is stored and split."""

    config: str
    system: str
    tp: int
    dp: int
    expert_tp: int
    expert_ep: int
    matrices: str
    experts: str
    kv: str


class NoTimes(HardwareError):
    """The library has no times for a model, its formats or its split on a GPU."""


class Operations:
    """The operations of one model on one rank; every time is in seconds per step.

    Of engines in data parallel it has one engine's own; ``routed_s`` is what they do together.
    """

    def __init__(self, asked: Asked) -> None:
        """Raises HardwareError if the library is not installed or has no table for an operation."""
        self._engine = _compiled(asked)
        with _told(asked.system):
            context, generation = self._engine.run_static_per_op(batch_size=1, isl=64, osl=2)
        self._engines = asked.dp
        self._context = _places([row[0] for row in context], asked.dp > 1)
        self._generation = _places([row[0] for row in generation], asked.dp > 1)

    def dense_s(self, tokens: int) -> float:
        """All operations over ``tokens`` except attention and the head: products, experts, all-reduces."""
        return self._over(tokens, self._context.rest, self._generation.rest)

    def routed_s(self, tokens: int) -> float:
        """Experts of a step in which all engines together have ``tokens``, and their exchange."""
        each = -(-tokens // self._engines)
        return self._over(each, self._context.routed, self._generation.routed)

    def _over(self, tokens: int, context: list[int], generation: list[int]) -> float:
        if tokens <= BESIDE_TOKENS:
            return _seconds(self._engine.evaluate_generation_ops(generation, batch_size=tokens, s=1))
        return _seconds(self._engine.evaluate_context_ops(context, batch_size=1, s=tokens))

    def head_s(self, sequences: int) -> float:
        """The language-model head over one token of each sequence."""
        return _seconds(
            self._engine.evaluate_generation_ops(self._generation.head, batch_size=sequences, s=1)
        )

    def prefill_s(self, new: int, cached: int) -> float:
        """Attention of a chunk of ``new`` tokens behind ``cached``."""
        places = self._context.attention
        rows = self._engine.evaluate_context_ops(places, batch_size=1, s=new, prefix=cached)
        return _seconds(rows)

    def decode_s(self, sequences: int, context: int) -> float:
        """Attention of a decode step of ``sequences`` with ``context`` tokens each."""
        places = self._generation.attention
        return _seconds(self._engine.evaluate_generation_ops(places, batch_size=sequences, s=context))


@dataclass(frozen=True, slots=True)
class _Places:
    """The places of operations in the library's list."""

    rest: list[int]
    attention: list[int]
    head: list[int]
    routed: list[int]


@cache
def asked_profile(gpu: str, llm: LlmShape, parallelism: Parallelism) -> Profile:
    """The operation tables of ``llm`` on ``gpu`` (a catalogue name), from the library, as it has them.

    Raises HardwareError if the library is not installed, or has no times for this model, GPU or split.
    """
    source = tables_stamp(gpu)
    operations, asked = _operations(gpu, llm, parallelism)
    stamp = Stamp(
        gpu=gpu,
        llm=llm.name,
        tp=parallelism.tp,
        engine=ENGINE,
        engine_version=_version_of_tables(asked.system),
        precision=llm.formats.text,
        source=source,
        licence=LICENCE,
        files=(),
        notes=_notes(asked, llm),
    )
    return Profile(stamp, _tables(operations, llm, asked.system))


@cache
def asked_group(gpu: str, llm: LlmShape, parallelism: Parallelism) -> SharedExperts:
    """What engines in data parallel do together: the experts of the busiest rank and the exchange, as one.

    Raises HardwareError as ``asked_profile``.
    """
    operations, asked = _operations(gpu, llm, parallelism)
    counts = [parallelism.dp * count for count in _counts(MOST_TOKENS)]
    with _told(asked.system):
        curve = _curve(counts, operations.routed_s)
    every = np.interp(np.arange(1, counts[-1] + 1), curve.counts, curve.seconds)
    seconds = np.concatenate([[0.0], np.maximum.accumulate(every)])
    times = ExpertTimes(seconds, np.zeros(len(seconds)), source=f"experts: {tables_stamp(gpu)}; {_SKEW}")
    return SharedExperts(gpu=gpu, ways=(), exchange=(), holder=LIBRARY, whole=times)


@cache
def _operations(gpu: str, llm: LlmShape, parallelism: Parallelism) -> tuple[Operations, Asked]:
    """The operations as they will run, or the nearest that the library has tables of."""
    first: HardwareError | None = None
    for asked in _ways(gpu, llm, parallelism):
        try:
            operations = Operations(asked)
            with _told(asked.system):
                operations.decode_s(1, SHORTEST_CONTEXT)
            return operations, asked
        except HardwareError as error:
            first = first or error
    assert first is not None, "there is at least one way to ask"
    raise first


@cache
def missing_times(gpu: str, llm: LlmShape, parallelism: Parallelism) -> str:
    """Why the library cannot answer; empty if it can. Raises HardwareError if it is not installed."""
    try:
        _operations(gpu, llm, parallelism)
    except NoTimes as error:
        return str(error)
    return ""


def library_version() -> str:
    """The installed version of the library; empty: it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(LIBRARY)
    except metadata.PackageNotFoundError:
        return ""


def knows(gpu: str) -> bool:
    """Whether the library has tables for a GPU of the catalogue."""
    return gpu in SYSTEMS


@cache
def tables_stamp(gpu: str) -> str:
    """The library's version, its name of the GPU, and a hash of all its tables of it."""
    if not knows(gpu):
        raise HardwareError(
            f"{LIBRARY} has no tables for {gpu}: write engine.step_time=roofline, or a cluster of "
            f"{', '.join(sorted(SYSTEMS))}"
        )
    from importlib import metadata

    _library()
    folder = Path(str(metadata.distribution(LIBRARY).locate_file("aiconfigurator_core/systems")))
    digest = sha256()
    for path in sorted((folder / "data" / SYSTEMS[gpu]).rglob("*.parquet")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(path.read_bytes())
    return f"{LIBRARY} {metadata.version(LIBRARY)}, {SYSTEMS[gpu]}, sha256 {digest.hexdigest()[:16]}"


def _ways(gpu: str, llm: LlmShape, parallelism: Parallelism) -> Iterator[Asked]:
    """What to ask for, the nearest first: tables of fp8 in blocks stand in for plain fp8 and the reverse.

    Sparse attention has tables of few formats: those of 16-bit products and KV stand in.
    """
    system, precision = SYSTEMS[gpu], llm.formats
    if llm.experts is None and precision.mlp != precision.attention:
        raise HardwareError(
            f"{LIBRARY} has one number format for all matrices of a model, and {llm.name} has "
            f"{precision.attention} in attention and {precision.mlp} in the MLP: write "
            "engine.step_time=roofline"
        )
    _check_formats(precision, llm)
    matrices: tuple[str, ...] = (_MATRICES[precision.attention],)
    kv: tuple[str, ...] = (_KV[precision.kv],)
    if llm.latent is not None and llm.latent.index is not None:
        matrices, kv = (*matrices, "fp8_block", "bfloat16"), (*kv, "bfloat16")
    wanted = _EXPERTS[precision.experts] if llm.experts is not None else "bfloat16"
    config = json.dumps(library_config(llm))
    every = product((wanted, _STAND_INS.get(wanted, wanted)), matrices, kv)
    for experts, product_format, kv_format in dict.fromkeys(every):
        yield Asked(
            config=config,
            system=system,
            tp=parallelism.tp,
            dp=parallelism.dp,
            expert_tp=parallelism.expert_tp if llm.experts is not None else 1,
            expert_ep=parallelism.expert_ep,
            matrices=_on(gpu, product_format),
            experts=_on(gpu, experts),
            kv=kv_format,
        )


def _check_formats(precision: Precision, llm: LlmShape) -> None:
    known = [(precision.attention, _MATRICES), (precision.kv, _KV)]
    if llm.experts is not None:
        known.append((precision.experts, _EXPERTS))
    for name, formats in known:
        if name not in formats:
            raise HardwareError(
                f"{LIBRARY} has no times for {name} of {llm.name}: write one of {', '.join(formats)}, or "
                "engine.step_time=roofline"
            )


def _notes(asked: Asked, llm: LlmShape) -> tuple[str, ...]:
    """What was not measured as it will run."""
    notes = [
        "operations are interpolated by the library; norms and activations are its estimates, and it has no "
        "sampler"
    ]
    wanted = _EXPERTS.get(llm.formats.experts, "")
    if llm.experts is not None:
        notes.append(_SKEW)
        if asked.experts not in (wanted, f"{wanted}_wo"):
            notes.append(f"experts in {wanted} take its times of {asked.experts}")
    notes += unasked_parts(llm)
    stored = _MATRICES[llm.formats.attention]
    if asked.matrices not in (stored, f"{stored}_wo"):
        notes.append(f"attention in {stored} takes its times of {asked.matrices}")
    if llm.formats.attention == "fp8_block":
        notes.append("products of fp8 in blocks take its times of plain fp8")
    return tuple(notes)


@cache
def _version_of_tables(system: str) -> str:
    _library()
    from aiconfigurator_core.sdk.perf_database import resolve_query_version

    with _told(system):
        return str(resolve_query_version(system, ENGINE, _VERSION))


def _on(gpu: str, stored: str) -> str:
    return f"{stored}_wo" if stored == "nvfp4" and gpu not in _FP4_CORES else stored


def _compiled(asked: Asked) -> Any:
    """The library's compiled engine. It reads the model from a folder, as of a checkpoint."""
    library = _library()
    with tempfile.TemporaryDirectory() as folder, _told(asked.system):
        (Path(folder) / "config.json").write_text(asked.config)
        return library.EngineHandle.compile(
            folder,
            asked.system,
            ENGINE,
            backend_version=_VERSION,
            tp_size=asked.tp,
            attention_dp_size=asked.dp,
            moe_tp_size=asked.expert_tp,
            moe_ep_size=asked.expert_ep,
            gemm_quant_mode=asked.matrices,
            moe_quant_mode=asked.experts,
            kvcache_quant_mode=asked.kv,
            fmha_quant_mode="bfloat16",  # its tables of vLLM have no other attention
        )


@contextmanager
def _told(system: str) -> Iterator[None]:
    """What the library raises becomes one sentence; it does not warn of tables that nobody asked for."""
    import logging

    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    except (RuntimeError, ValueError, KeyError, AssertionError) as error:
        first = " ".join(str(error).split())[:_MOST_ERROR]
        raise NoTimes(
            f"{LIBRARY} has no times for this model on {system} ({first}): write another model.precision, "
            "model.tp or cluster, or engine.step_time=roofline"
        ) from error
    finally:
        logging.disable(disabled)


def _library() -> Any:
    try:
        from aiconfigurator_core import sdk
    except ImportError:
        raise HardwareError(
            f"these step times need the package {LIBRARY}: write pip install 'servetwin[silicon]', or "
            "engine.step_time=roofline"
        ) from None
    return sdk


def _places(names: Sequence[str], together: bool) -> _Places:
    """``together``: experts and their exchange are apart from the rest."""
    attention = [place for place, name in enumerate(names) if name.endswith(_ATTENTION)]
    head = [place for place, name in enumerate(names) if name.endswith(_HEAD)]
    routed = [place for place, name in enumerate(names) if together and name.endswith(_ROUTED)]
    rest = [place for place in range(len(names)) if place not in {*attention, *head, *routed}]
    return _Places(rest, attention, head, routed)


def _seconds(rows: Sequence[tuple[str, float, float, str]]) -> float:
    return sum(row[1] for row in rows) * _S_PER_MS


def _tables(operations: Operations, llm: LlmShape, system: str) -> OpTables:
    contexts = _geometric(SHORTEST_CONTEXT, llm.max_context_tokens)
    with _told(system):
        return OpTables(
            dense=_curve(_counts(MOST_TOKENS), operations.dense_s),
            head=_curve(range(1, MOST_SEQUENCES + 1), operations.head_s),
            all_reduce=None,
            decode=(_lattice(_geometric(1, MOST_SEQUENCES), contexts, operations.decode_s),),
            prefill=(_lattice(_geometric(1, MOST_TOKENS), [0, *contexts], operations.prefill_s),),
            mixed=(),
            skew=None,
        )


def _counts(last: int) -> list[int]:
    return [*range(1, EVERY_COUNT + 1), *range(EVERY_COUNT + TILE_TOKENS, last + 1, TILE_TOKENS)]


def _curve(counts: Sequence[int], seconds: Callable[[int], float]) -> Curve:
    return Curve(tuple(counts), tuple(seconds(count) for count in counts))


def _lattice(lines: Sequence[int], others: Sequence[int], seconds: Callable[[int, int], float]) -> Lattice:
    values = np.array([[seconds(line, other) for other in others] for line in lines])
    return Lattice((tuple(lines), tuple(others)), values)


def _geometric(first: int, last: int) -> list[int]:
    steps = int(np.ceil(np.log(last / first) / np.log(RATIO)))
    return sorted({round(float(at)) for at in np.geomspace(first, last, steps + 1)})
