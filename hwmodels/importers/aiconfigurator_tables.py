"""The tables of an AIConfigurator folder of one GPU: matrix products and attention, all in vLLM.

Latencies in milliseconds of one operation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from hwmodels.errors import HardwareError
from hwmodels.importers.request import ImportRequest, device_notes
from hwmodels.importers.tables import Table, mean_by_count, read_table
from hwmodels.profiles.profile import Curve

SOURCE: Final = "ai-dynamo/aiconfigurator"
LICENCE: Final = "Apache-2.0"
ENGINE: Final = "vllm"
PRECISION: Final = "bf16"
BF16: Final = "bfloat16"  # what the tables call PRECISION
_FARTHEST_RATIO: Final = 2.0  # a product is scaled from one with n and k within this factor, or refused


@dataclass(frozen=True, slots=True)
class Folder:
    """One GPU's folder with kind/engine/version/file; ``request`` names GPU, tp and maybe the version."""

    path: Path
    request: ImportRequest

    def version(self) -> str:
        """The vLLM version measured: the user's, or the only one present."""
        there = sorted(path.name for path in (self.path / "gemm" / ENGINE).glob("*") if path.is_dir())
        given = self.request.engine_version
        if not there:
            raise HardwareError(
                f"{self.path} has no folder gemm/{ENGINE}/VERSION; name the folder of one GPU, "
                "such as a100_sxm"
            )
        if given is None and len(there) > 1:
            raise HardwareError(f"{self.path} has several versions; write engine_version={there[-1]}")
        if given is not None and given not in there:
            raise HardwareError(f"{self.path} has no {ENGINE} {given}; write engine_version={there[-1]}")
        return given or there[0]

    def read(
        self, kind: str, name: str, counts: Sequence[str], words: Sequence[str], optional: Sequence[str] = ()
    ) -> Table:
        """The table ``name`` of a kind, on the requested GPU."""
        path = self.path / kind / ENGINE / self.version() / f"{name}.parquet"
        return read_table(path, counts, ("latency",), (*words, "device"), optional=optional)

    def named(self, table: Table) -> tuple[str, str]:
        """(name below the GPU's folder, sha256) for the stamp."""
        path = table.path.relative_to(self.path).as_posix()
        return f"{self.path.resolve().name}/{path}", table.sha256


@dataclass(frozen=True, slots=True)
class Products:
    """The table of matrix products, read once."""

    table: Table

    def curve(self, n: int, k: int) -> tuple[Curve, tuple[str, ...]]:
        """Seconds over tokens of a product with n columns out and k in; a note if it was not measured.

        An unmeasured product takes the time of the nearest one (in logarithms), scaled by n * k.
        HardwareError if that is more than a factor of 2 away in n or in k.
        """
        shapes = np.unique(np.stack([self.table.counts["n"], self.table.counts["k"]], axis=1), axis=0)
        shapes = shapes[(shapes > 0).all(axis=1)]
        steps = np.abs(np.log(shapes / np.array([n, k])))
        within = (steps <= np.log(_FARTHEST_RATIO) + 1e-9).all(axis=1)
        if not within.any():
            raise HardwareError(
                f"{self.table.path} has no product near n={n} k={k}: the nearest measured must be within a "
                f"factor of {_FARTHEST_RATIO:g} in both; write another tp or model"
            )
        nearest = np.flatnonzero(within)[np.argmin(steps[within].sum(axis=1))]
        near_n, near_k = (int(side) for side in shapes[nearest])
        rows = self.table.having(n=near_n, k=near_k)
        scale = n * k / (near_n * near_k)
        curve = mean_by_count(rows.counts["m"], rows.times["latency"] * (1e-3 * scale))
        same = (near_n, near_k) == (n, k)
        note = f"product n={n} k={k} was not measured: that of n={near_n} k={near_k} times {scale:.3g}"
        return curve, () if same else (note,)

    def widest(self) -> int:
        """The largest number of columns of any measured product."""
        return int(self.table.counts["n"].max())

    def narrowest(self) -> int:
        """The smallest number of columns of any measured product."""
        columns = self.table.counts["n"]
        return int(columns[columns > 0].min())

    def shortest_s(self) -> float:
        """The time of the shortest product: little more than a kernel launch."""
        return float(self.table.times["latency"].min()) * 1e-3


def read_products(folder: Folder) -> tuple[Products, tuple[str, ...]]:
    """The table of matrix products of the requested GPU, and notes on the device."""
    table = folder.read("gemm", "gemm_perf", ("m", "n", "k"), ("gemm_dtype",)).having(gemm_dtype=BF16)
    table = table.where(table.counts["m"] > 0)
    notes = device_notes(folder.request.gpu, str(table.words["device"][0]), table.path)
    return Products(table), notes
