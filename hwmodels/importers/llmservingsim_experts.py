"""LLMServingSim's moe.csv: one block of a mixture of experts in vLLM, over tokens and activated experts.

A block is the gate, the choice and the experts; the choice was forced in rotation, so that loads are
balanced. Tables it lacks (experts shared between GPUs, exchanges) come from AIConfigurator, if named.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hwmodels.catalogue import load_gpu
from hwmodels.errors import HardwareError
from hwmodels.importers.aiconfigurator_experts import read_exchanges, read_experts
from hwmodels.importers.aiconfigurator_tables import Folder, read_products
from hwmodels.importers.expert_lattice import from_memory
from hwmodels.importers.request import ImportRequest
from hwmodels.importers.tables import Table, read_table
from hwmodels.models.llm_shape import LlmShape
from hwmodels.profiles.profile import Exchange, ExpertTable, Lattice

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
    there = tuple((one.expert_tp, one.expert_ep) for one in own.tables)
    tables, notes, files = read_experts(other, llm, products, there)
    exchanges, more_files = read_exchanges(other, llm) if request.tp == 1 else ((), ())
    return Mixture((*own.tables, *tables), exchanges, (*own.notes, *notes), own.read, (*files, *more_files))


def _own(request: ImportRequest, path: Path, llm: LlmShape) -> Mixture:
    """Tables of whole experts on one GPU, measured with all experts, whatever tp."""
    if not path.exists() or request.tp > 1:
        return Mixture()
    assert llm.experts is not None, "a mixture of experts"
    table = read_table(path, ("tokens", "activated_experts"), ("time_us",))
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
