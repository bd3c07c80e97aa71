"""LLMServingSim's layer tables: a folder per GPU, organisation and model, with one per tensor-parallel size.

Times in microseconds of one layer in vLLM: operations over tokens, head and sampler over sequences, attention
over prompt chunk, its cached tokens, decoding sequences and their context, and the effect of unequal
contexts.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.errors import HardwareError
from hwmodels.importers.aiconfigurator import read_exchanges, read_experts
from hwmodels.importers.aiconfigurator_tables import LICENCE as OTHER_LICENCE
from hwmodels.importers.aiconfigurator_tables import SOURCE as OTHER_SOURCE
from hwmodels.importers.aiconfigurator_tables import Folder, read_all_reduce, read_products
from hwmodels.importers.lattices import from_memory, lattices_of
from hwmodels.importers.request import ImportRequest, device_notes
from hwmodels.importers.tables import Mask, Table, mean_by_count, read_bytes, read_table, summed
from hwmodels.models.llm_shape import LlmShape
from hwmodels.profiles.profile import Curve, Exchange, ExpertTable, Lattice, OpTables, Profile, Stamp
from hwmodels.yaml_text import MOST_YAML_BYTES, users_yaml


@dataclass(frozen=True, slots=True)
class Meta:
    """The file's entries; ``sha256`` None if there is no such file."""

    path: Path
    sha256: str | None = None
    entries: Mapping[str, Any] = field(default_factory=dict)

    def engine_version(self, request: ImportRequest) -> str:
        """The version in the file, or without a file the user's."""
        measured, given = self.entries.get("vllm_version"), request.engine_version
        if measured is None and given is None:
            raise HardwareError(
                f"{self.path} gives no vllm_version; write engine_version=VERSION with the vLLM version that "
                "these tables were measured with"
            )
        if measured is not None and given is not None and str(measured) != given:
            raise HardwareError(
                f"{self.path} has vllm_version {measured}; leave engine_version={given} out, or write "
                f"engine_version={measured}"
            )
        return str(given if measured is None else measured)

    def precision(self) -> str:
        """The number format; bf16 when there is no file."""
        return str(self.entries.get("variant", "bf16"))

    def notes(self, request: ImportRequest, llm: LlmShape) -> tuple[str, ...]:
        """Unverified assumptions; HardwareError if the file is of another GPU or model."""
        if self.sha256 is None:
            return (f"no {self.path.name}: GPU, model and engine version are the user's, bf16 is assumed",)
        self._require_shape(llm)
        device = str(self.entries.get("gpu", self.entries.get("hardware", "a device without a name")))
        return device_notes(request.gpu, device, self.path)

    def says_no_skew(self) -> bool:
        """Whether the file states that skewed batches were not profiled."""
        flags = (self.entries.get(key) for key in ("skew_profile", "skew_fit"))
        return any(isinstance(flag, Mapping) and flag.get("enabled") is False for flag in flags)

    def _require_shape(self, llm: LlmShape) -> None:
        """Require that the overrides are one rank's share of the model at a measured tensor-parallel size."""
        settings = self.entries.get("engine_effective")
        shares = settings.get("hf_overrides") if isinstance(settings, Mapping) else None
        if not isinstance(shares, Mapping):
            return
        whole = {
            "num_attention_heads": llm.heads,
            "num_key_value_heads": llm.kv_heads,
            "intermediate_size": llm.intermediate,
            "vocab_size": llm.vocab,
        }
        degrees = self.entries.get("tp_degrees") or [1]
        known = {name: full for name, full in whole.items() if name in shares}
        if any(all(shares[name] * tp == full for name, full in known.items()) for tp in degrees):
            return
        measured = ", ".join(f"{name} {shares[name]}" for name in known)
        raise HardwareError(
            f"{self.path} has {measured} per rank, which is not the shape of {llm.name}; "
            f"write the model it was measured for ({self.entries.get('model', 'not named')})"
        )


def read_meta(path: Path) -> Meta:
    """The file at ``path``, or empty entries if there is none."""
    import yaml  # type: ignore[import-untyped, unused-ignore]

    if not path.exists():
        return Meta(path)
    content = read_bytes(path, MOST_YAML_BYTES)
    try:
        entries = users_yaml(content)
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise HardwareError(f"{path} is not YAML ({reason}); take the file as it was published") from error
    if not isinstance(entries, Mapping):
        raise HardwareError(f"{path} holds no keys; take the file as it was published")
    return Meta(path, hashlib.sha256(content).hexdigest(), entries)


# LLMServingSim's moe.csv: one block of a mixture of experts in vLLM, over tokens and activated experts.
# A block is the gate, the choice and the experts; the choice was forced in rotation, so that loads are
# balanced. Tables it lacks (experts shared between GPUs, exchanges) come from AIConfigurator, if named.

FILE = "moe.csv"


@dataclass(frozen=True, slots=True)
class Mixture:
    """``read``: tables of this format; ``other_files``: name and sha256 of AIConfigurator's."""

    tables: tuple[ExpertTable, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    notes: tuple[str, ...] = ()
    read: tuple[Table, ...] = ()
    other_files: tuple[tuple[str, str], ...] = ()


def read_mixture(request: ImportRequest, folder: Path, llm: LlmShape, version: str) -> Mixture:
    """Empty for a dense model; HardwareError if no table has the experts."""
    if llm.experts is None:
        return Mixture()
    own = _own(request, folder / FILE, llm)
    if request.aiconfigurator is None:
        if not own.tables:
            raise HardwareError(
                f"no expert times for {llm.name} on {request.gpu} at tp={request.tp}: {folder} has no "
                f"{FILE}; write aiconfigurator=FOLDER, that GPU's folder, where experts are cut over GPUs"
            )
        return own
    other = Folder(request.aiconfigurator, replace(request, engine_version=version))
    products, _ = read_products(other)
    there = tuple((table.expert_tp, table.expert_ep) for table in own.tables)
    tables, notes, files = read_experts(other, llm, products, there)
    exchanges, more_files = read_exchanges(other, llm) if request.tp == 1 else ((), ())
    return Mixture((*own.tables, *tables), exchanges, (*own.notes, *notes), own.read, (*files, *more_files))


def _own(request: ImportRequest, path: Path, llm: LlmShape) -> Mixture:
    """Tables of whole experts on one GPU, measured with all experts, whatever tp."""
    if not path.exists() or request.tp > 1:
        return Mixture()
    assert llm.experts is not None, "a mixture of experts"
    table = read_table(path, ("tokens", "activated_experts"), times=("time_us",))
    tokens, experts = (np.unique(table.counts[name]) for name in ("tokens", "activated_experts"))
    if experts[-1] != llm.experts.count or experts[0] < 1:
        raise HardwareError(
            f"{path} has up to {experts[-1]} activated experts and {llm.name} has {llm.experts.count}; write "
            "the model it was measured for"
        )
    values = np.full((len(tokens), len(experts)), np.nan)
    rows = np.searchsorted(tokens, table.counts["tokens"])
    columns = np.searchsorted(experts, table.counts["activated_experts"])
    values[rows, columns] = table.times["time_us"] * (1e-6 * llm.moe_layers)
    lattice = Lattice((tuple(tokens.tolist()), tuple(experts.tolist())), values)
    one_bytes = llm.experts.parameters_of_one(llm.hidden) * llm.bytes_per_parameter
    lattice, notes = from_memory(lattice, one_bytes, load_gpu(request.gpu))
    return Mixture((ExpertTable(1, 1, lattice),), (), notes, (table,))


SOURCE: Final = "casys-kaist/LLMServingSim, single layers profiled in vLLM"
LICENCE: Final = "MIT"
_PER_STEP: Final = ("embedding", "final_layernorm")
_TWICE_PER_LAYER: Final = ("layernorm", "qk_norm")
_PER_LAYER: Final = ("qkv_proj", "rotary_emb", "o_proj", "gate_up_proj", "act_fn", "down_proj")
_OF_MLP: Final = ("gate_up_proj", "act_fn", "down_proj")  # a mixture of experts has none of these
_NOT_IN_EVERY_MODEL: Final = frozenset({"qk_norm"})
_HEAD: Final = {"lm_head": 1.0, "sampler": 1.0}
_ATTENTION: Final = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
_LOW_SKEW_PERCENT: Final = 40.0  # the rates of ordinary batches; beyond, single outliers determine alpha
_NOTES: Final = (
    "one layer was measured: what each layer does is multiplied by the layers of the model",
    "layernorm counts twice per layer, embedding and final_layernorm once per step",
    "kv_decode is taken as the context tokens of each decoding sequence",
)


def import_llmservingsim(request: ImportRequest) -> Profile:
    """The profile of ``request.tp`` ranks in folder ``request.path``; HardwareError if it does not fit."""
    llm = load_llm(request.llm)
    llm.require_tp(request.tp)
    folder = _tp_folder(request)
    meta = read_meta(request.path / "meta.yaml")
    llm.require_known_attention()
    dense = read_table(folder / "dense.csv", ("tokens",), times=("time_us",), words=("layer",))
    head = read_table(folder / "per_sequence.csv", ("sequences",), times=("time_us",), words=("layer",))
    attention = read_table(folder / "attention.csv", _ATTENTION, times=("time_us",))
    skew = None if meta.says_no_skew() else _read_skew(folder / "skew_fit.csv")
    read = [dense, head, attention, *([skew] if skew else [])]
    version = meta.engine_version(request)
    all_reduce, reduce_notes, reduce_files = _all_reduce(request, llm, version)
    mixture = read_mixture(request, folder, llm, version)
    return Profile(
        Stamp(
            gpu=request.gpu,
            llm=llm.name,
            tp=request.tp,
            engine="vllm",
            engine_version=version,
            precision=meta.precision(),
            source=_source(all_reduce, mixture),
            licence=LICENCE
            if not (reduce_files or mixture.other_files)
            else f"{LICENCE}, {OTHER_LICENCE} ({OTHER_SOURCE})",
            files=(
                *_files(request.path, meta, [*read, *mixture.read]),
                *reduce_files,
                *mixture.other_files,
            ),
            notes=(
                *_NOTES,
                *meta.notes(request, llm),
                *_table_notes(dense, skew, meta),
                *reduce_notes,
                *mixture.notes,
            ),
        ),
        OpTables(
            dense=_weighted(dense, "tokens", _dense_weights(dense, llm)),
            head=_weighted(head, "sequences", _HEAD),
            all_reduce=all_reduce,
            skew=None if skew is None else _skew_lattice(skew),
            experts=mixture.tables,
            exchange=mixture.exchanges,
            **_attention_lattices(attention, llm),
        ),
    )


def _source(all_reduce: Curve | None, mixture: Mixture) -> str:
    """The source, naming the other project if anything was taken from it."""
    taken = ["all-reduce"] if all_reduce is not None else []
    taken += ["shared experts and exchange"] if mixture.other_files else []
    return f"{SOURCE}; {' and '.join(taken)} of {OTHER_SOURCE}" if taken else SOURCE


def _all_reduce(
    request: ImportRequest, llm: LlmShape, version: str
) -> tuple[Curve | None, tuple[str, ...], tuple[tuple[str, str], ...]]:
    """All-reduces from AIConfigurator's folder of this GPU in the same engine version, if it was named."""
    if request.aiconfigurator is not None:
        return read_all_reduce(Folder(request.aiconfigurator, replace(request, engine_version=version)), llm)
    alone = request.tp == 1
    return None, () if alone else ("all-reduce between the ranks was not measured",), ()


def _tp_folder(request: ImportRequest) -> Path:
    folder = request.path / f"tp{request.tp}"
    if not folder.is_dir():
        there = sorted(path.name for path in request.path.glob("tp*") if path.is_dir())
        known = f"it has {', '.join(there)}" if there else "name the folder .../GPU/organisation/model"
        raise HardwareError(f"{request.path} has no folder {folder.name} for tp={request.tp}; {known}")
    return folder


def _files(root: Path, meta: Meta, tables: list[Table]) -> tuple[tuple[str, str], ...]:
    read = [(meta.path, meta.sha256), *((table.path, table.sha256) for table in tables)]
    name = root.resolve().name
    return tuple((f"{name}/{path.relative_to(root).as_posix()}", sha) for path, sha in read if sha)


def _dense_weights(dense: Table, llm: LlmShape) -> dict[str, float]:
    """How often per step each operation runs; an unknown one runs once per layer."""
    if llm.qk_norm != ("qk_norm" in dense.words["layer"]):
        has, is_with = ("no", "has it") if llm.qk_norm else ("an", "is without")
        raise HardwareError(
            f"{dense.path} has {has} operation qk_norm and {llm.name} {is_with}; write the model it was "
            "measured for"
        )
    of_mlp = {*_OF_MLP} if llm.experts is not None else set()
    weights = {name: float(llm.layers) for name in (*_PER_LAYER, *_unknown(dense)) if name not in of_mlp}
    weights |= dict.fromkeys(_PER_STEP, 1.0)
    return weights | dict.fromkeys(_TWICE_PER_LAYER, 2.0 * llm.layers)


def _unknown(dense: Table) -> list[str]:
    return sorted(set(dense.words["layer"].tolist()) - {*_PER_STEP, *_TWICE_PER_LAYER, *_PER_LAYER})


def _weighted(table: Table, count: str, weights: Mapping[str, float]) -> Curve:
    """Seconds per step over ``count``; every operation must be measured on the same counts."""
    curves: list[tuple[float, Curve]] = []
    there = set(table.words["layer"].tolist())
    for layer, weight in weights.items():
        if layer in _NOT_IN_EVERY_MODEL - there:
            continue
        rows = table.having(layer=layer)
        curve = mean_by_count(rows.counts[count], rows.times["time_us"] * 1e-6)
        if curves and curve.counts != curves[0][1].counts:
            odd = sorted(set(curve.counts) ^ set(curves[0][1].counts))[0]
            raise HardwareError(
                f"{table.path}: {count}={odd} was measured for some layers only ({layer} is one that "
                f"differs); measure each layer on the same {count}"
            )
        curves.append((weight, curve))
    return summed(curves)


def _attention_lattices(table: Table, llm: LlmShape) -> dict[str, tuple[Lattice, ...]]:
    chunks, sequences = table.counts["prefill_chunk"] > 0, table.counts["n_decode"] > 0
    kinds = {
        "decode": (sequences & ~chunks, _ATTENTION[2:]),
        "prefill": (chunks & ~sequences, _ATTENTION[:2]),
        "mixed": (chunks & sequences, _ATTENTION),
    }
    return {kind: _lattices(table, llm, kind, rows, axes) for kind, (rows, axes) in kinds.items()}


def _lattices(
    table: Table, llm: LlmShape, kind: str, rows: Mask, axes: tuple[str, ...]
) -> tuple[Lattice, ...]:
    rows_of_kind = table.where(rows)
    if not len(rows_of_kind):
        if kind == "mixed":
            return ()
        need = "prefill_chunk 0 and n_decode" if kind == "decode" else "n_decode 0 and prefill_chunk"
        raise HardwareError(f"{table.path} has no {kind} rows; it needs rows with {need} above 0")
    columns = [rows_of_kind.counts[name] for name in axes]
    return lattices_of(columns, rows_of_kind.times["time_us"] * (1e-6 * llm.layers))


def _read_skew(path: Path) -> Table | None:
    if not path.exists():
        return None
    return read_table(
        path, ("pc", "n_samples"), times=(), words=("n_label", "skew_rate_label"), shares=("alpha",)
    )


def _skew_lattice(table: Table) -> Lattice:
    """Alpha over prompt chunk and the largest batch of each class, which is the one that was profiled."""
    sizes = np.array([_bound(table, "n_label", "n", row) for row in range(len(table))])
    rates = np.array([_bound(table, "skew_rate_label", "sr", row) for row in range(len(table))])
    closed = np.isfinite(sizes) & (table.counts["n_samples"] > 0)
    if not closed.any():
        raise HardwareError(f"{table.path} has no row with an n_label such as n<=32 and n_samples above 0")
    points, group = np.unique(
        np.stack([table.counts["pc"][closed], sizes[closed].astype(np.int64)], axis=1),
        axis=0,
        return_inverse=True,
    )
    group, samples = group.reshape(-1), table.counts["n_samples"][closed].astype(np.float64)
    low = samples * (rates[closed] <= _LOW_SKEW_PERCENT)
    weights = np.where(np.bincount(group, low)[group] > 0.0, low, samples)
    alpha = np.bincount(group, weights * table.times["alpha"][closed]) / np.bincount(group, weights)
    axes, places = zip(*(np.unique(column, return_inverse=True) for column in points.T))
    values = np.full([len(axis) for axis in axes], np.nan)
    values[places] = np.clip(alpha, 0.0, 1.0)
    return Lattice(tuple(tuple(axis.tolist()) for axis in axes), values)


def _bound(table: Table, column: str, name: str, row: int) -> float:
    """32 of 'n<=32', 40 of 'sr<=40%', infinity of 'n>256'."""
    label = str(table.words[column][row])
    relation, number = label.removeprefix(name)[:2], label.removeprefix(name).lstrip("<=>").rstrip("%")
    if not label.startswith(name) or not number.isascii() or not number.isdigit() or relation[0] not in "<>":
        raise HardwareError(f"{table.path} row {row + 1}: {column} is {label!r}; write {name}<=NUMBER")
    return float(number) if relation == "<=" else float("inf")


def _table_notes(dense: Table, skew: Table | None, meta: Meta) -> tuple[str, ...]:
    notes = []
    if "qk_norm" in dense.words["layer"]:
        notes.append("qk_norm is assumed to be the time of one of the two norms: it counts twice per layer")
    notes += [f"the unknown operation {name} counts once per layer" for name in _unknown(dense)]
    if meta.says_no_skew():
        notes.append("skew: meta.yaml says it was not profiled, so unequal contexts cost as equal ones")
    elif skew is None:
        notes.append("no skew_fit.csv: what unequal contexts cost was not measured")
    else:
        notes.append(
            "skew: alpha averaged by samples over skew rates up to 40 %, kept within 0 and 1, and taken to "
            "hold at the largest batch of its class"
        )
    return tuple(notes)
