"""python -m scripts.clusters_page: writes the catalogue of clusters and of GPUs into docs/reference/CLUSTERS.

A table stands between ``<!-- clusters -->`` (or ``<!-- gpus -->``) and ``<!-- end -->``; its rows are the
catalogue's (hwmodels/catalogue).
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hwmodels.catalogue import load_gpu
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.spec import ClusterSpec, Rate
from servetwin.config.compose.clusters import CLUSTER_FAMILIES, topology_names

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "reference" / "CLUSTERS.md"
_TABLE: Final = re.compile(r"<!-- (clusters|gpus) -->\n.*?<!-- end -->", re.DOTALL)
_LINKS: Final = ("nvlink", "pcie", "nic", "ssd")
_BITS_PER_GB: Final = 8e-9  # Gbit/s of one byte/s


def with_catalogue(page: str) -> str:
    """Return the page's text with its tables as the catalogue has them."""
    tables = {"clusters": _clusters, "gpus": _gpus}
    return _TABLE.sub(
        lambda mark: "\n".join([f"<!-- {mark[1]} -->", *tables[mark[1]](), "<!-- end -->"]), page
    )


def _clusters() -> Iterator[str]:
    yield from ("|cluster|hosts x GPUs|NVLink|PCIe|NIC|SSD|", "|---|---|---|---|---|---|")
    for name in topology_names():
        spec = load_cluster(name)
        rates = "|".join(_rate(getattr(spec, link)) for link in _LINKS)
        yield f"|`{name}`|{_size(spec)}|{rates}|"


def _size(spec: ClusterSpec) -> str:
    return f"{spec.hosts}x{spec.gpus_per_host} `{spec.gpu}`"


def _rate(rate: Rate | None) -> str:
    """In Gbit/s of one direction; empty: the cluster has none."""
    return "" if rate is None else f"{rate.bytes_per_s * _BITS_PER_GB:,.4g}"


def _gpus() -> Iterator[str]:
    yield from ("|GPU|memory, GB|GB/s|16-bit TFLOP/s|step times by datasheet|", "|---|---|---|---|---|")
    for family, name in CLUSTER_FAMILIES.items():
        gpu = load_gpu(name)
        size, speed = gpu.memory_bytes / 1e9, gpu.memory_bandwidth_bytes_per_s / 1e9
        known = "yes" if gpu.unmeasured else ""
        yield f"|`{family}`|{size:.1f}|{speed:,.0f}|{gpu.flops_per_s / 1e12:,.4g}|{known}|"


if __name__ == "__main__":
    PAGE.write_text(with_catalogue(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
