"""docs/reference/CLUSTERS has the catalogue's clusters and GPUs with their numbers."""

from scripts.clusters_page import PAGE, with_catalogue
from servetwin.config.compose.clusters import CLUSTER_FAMILIES, topology_names


def test_the_tables_are_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_catalogue(text) == text, "write python -m scripts.clusters_page"


def test_every_cluster_and_gpu_has_a_row() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in (*topology_names(), *CLUSTER_FAMILIES) if f"\n|`{name}`|" not in text] == []
