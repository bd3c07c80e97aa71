"""Makes clusters without an option file.

``cluster=FAMILY_xN`` is N GPUs of one kind and no links; ``cluster=NAME`` or ``NAME_HxG`` (H hosts of G GPUs)
is a cluster of the catalogue with all its links. Both take files of the user's own: ``FILE.yaml_xN`` with a
GPU's numbers, ``FILE.yaml`` and ``FILE.yaml_HxG`` with those of a cluster.
"""

import re
from typing import Final

from hwmodels.catalogue import gpu_names, known_gpu
from hwmodels.gpus.gpu_file import OWN, is_gpu_file
from hwmodels.topology.cluster_file import cluster_names, is_cluster_file, load_cluster
from hwmodels.topology.spec import ClusterSpec, with_rate
from servetwin.config.config import GIVEN, MAX_GPUS, ClusterConfig
from servetwin.config.overrides import Override
from serving.vocabulary.errors import UserError

# Family -> catalogue name: each GPU by its own name, and a100 for the 80 GB one.
CLUSTER_FAMILIES: Final = {
    "a100": "a100_80g",
    "a10": "a10",
    "a40": "a40",
    "a100_40g": "a100_40g",
    "a100_80g": "a100_80g",
    "a800": "a800",
    "h100": "h100",
    "h200": "h200",
    "b200": "b200",
    "b300": "b300",
    "gb200": "gb200",
    "gb300": "gb300",
    "l4": "l4",
    "l40s": "l40s",
    "rtx4090": "rtx4090",
    "mi300x": "mi300x",
    "mi355x": "mi355x",
    "rtx_5090": "rtx_5090",
    "rtx_pro_6000": "rtx_pro_6000",
    "v100": "v100",
}
_LONGEST_FIRST: Final = tuple(sorted(CLUSTER_FAMILIES, key=len, reverse=True))
# The workers of this machine; local_HxG is the simulated counterpart.
LOCAL: Final = "local"
CLUSTER_GPU: Final = "cluster.gpu"
_COUNT_FIRST: Final = re.compile(r"([1-9][0-9]{0,5})_?x_?([a-z].*)")
# Links whose rate a run may set: cluster.nic_gbps=50.
RATED: Final = ("pcie", "nvlink", "nic", "ssd", "remote")
_FILE_RATES: Final = {"links": GIVEN, **{f"{link}_gbps": None for link in RATED}}
_SIZED: Final = re.compile(r"([a-z0-9_]+)_[1-9][0-9]{0,4}x[1-9][0-9]{0,2}")
_NAME: Final = re.compile(r"([a-z0-9_]+|.+\.ya?ml)_x([1-9][0-9]{0,5})")
_ANY_NAME: Final = re.compile(r"(.+)[ _-]x([1-9][0-9]{0,5})", re.IGNORECASE)


def requested_cluster(name: str) -> dict[str, str | int | float | None] | None:
    """Return the keys of ClusterConfig for such a name; None for other names, or above ``MAX_GPUS``."""
    if name in topology_names() or _SIZED.fullmatch(name) or is_cluster_file(name):
        return _with_links(name)
    match = _NAME.fullmatch(name)
    if match is None or int(match[2]) > MAX_GPUS:
        return None
    if match[1] not in CLUSTER_FAMILIES and not is_gpu_file(match[1]):
        return None
    gpu, gpus = CLUSTER_FAMILIES.get(match[1], match[1]), int(match[2])
    return {"name": name, "gpu": gpu, "gpus": gpus, "topology": None, "start": "warm", **_FILE_RATES}


def hardware_named(text: str) -> str:
    """Return the family or the catalogue's cluster that ``text`` means, in any case or by a GPU's alias.

    ``text`` itself if it means none, and for the path of a GPU's file.
    """
    folded = _normal_form(text)
    if is_gpu_file(text) or text in CLUSTER_FAMILIES:
        return text
    if folded in CLUSTER_FAMILIES or folded in topology_names():
        return folded
    sized = _SIZED.fullmatch(folded)
    if sized is not None and sized[1] in cluster_names():
        return folded
    gpu = known_gpu(text)
    return gpu if gpu in CLUSTER_FAMILIES else text


def cluster_named(text: str) -> str:
    """Return the cluster that ``text`` means, ``h100_x8`` of ``H100-SXM_x8``; ``text`` if it means none."""
    if requested_cluster(text) is not None:
        return text
    sized = _ANY_NAME.fullmatch(text)
    name = f"{hardware_named(sized[1])}_x{sized[2]}" if sized is not None else hardware_named(text)
    return name if requested_cluster(name) is not None else text


def topology_names() -> tuple[str, ...]:
    """Return the catalogue's clusters with links; ``local_HxG`` has links, ``local`` alone has none here."""
    return tuple(name for name in cluster_names() if name != LOCAL)


def _with_links(name: str) -> dict[str, str | int | float | None] | None:
    sized = _SIZED.fullmatch(name)
    if sized is not None and sized[1] not in cluster_names():
        return None
    spec = load_cluster(name)  # also of a file of the user's own
    if spec.gpus > MAX_GPUS:
        return None
    return {
        "name": name, "gpu": spec.gpu, "gpus": spec.gpus, "topology": name, "start": "warm", **_FILE_RATES
    }  # fmt: skip


def spec_of_cluster(cluster: ClusterConfig) -> ClusterSpec:
    """Return the links of a run's cluster, which must have some, with the rates that the run sets."""
    assert cluster.topology is not None, "a cluster without links"
    spec = load_cluster(cluster.topology)
    for link in RATED:
        gbps = getattr(cluster, f"{link}_gbps")
        if gbps is not None:
            spec = with_rate(link, gbps, spec)
    return spec


def check_gpu(word: Override, cluster: str) -> Override:
    """Return the word with the GPU's own name; UserError unless ``cluster`` is this machine.

    Also if the catalogue does not have the GPU.

    Only for this machine does the user state the GPU; other clusters have it in their file.
    """
    if cluster != LOCAL and not cluster.startswith(f"{LOCAL}_"):
        raise UserError(
            f"{word.key} is of this machine's workers, and cluster={cluster} has its own: write "
            f"cluster=OPTION, such as {near_cluster(word.text) or 'h100_x8'}, and leave it out"
        )
    gpu = word.text if is_gpu_file(word.text) else known_gpu(word.text)
    if gpu is None:
        raise UserError(f"{word} is not in the catalogue: write one of {', '.join(gpu_names())}, or {OWN}")
    return Override(word.key, gpu)


def check_rates(cluster: ClusterConfig) -> None:
    """Refuse a rate of a link that the cluster does not have, with UserError or HardwareError."""
    given = [f"cluster.{link}_gbps" for link in RATED if getattr(cluster, f"{link}_gbps") is not None]
    if given and cluster.topology is None:
        raise UserError(
            f"{given[0]} is of a link, and cluster={cluster.name} has none: leave it out, or write a cluster "
            "that has links, such as cluster=blitz_a"
        )
    if given:
        spec_of_cluster(cluster)


def near_family(text: str) -> str:
    """Return the GPU with which a wrong name begins, ignoring case and further text; "" if none."""
    return next((one for one in _LONGEST_FIRST if _normal_form(text).startswith(one)), "")


def near_cluster(text: str) -> str:
    """Return the cluster that a wrong name means: ``h100_x8`` of h100x8, H100-8, 8xH100, h100; or ""."""
    first = _COUNT_FIRST.fullmatch(_normal_form(text))
    name = f"{first[2]}_x{first[1]}" if first else _normal_form(text)
    if family := near_family(name):
        count = name.removeprefix(family).strip("_x")
        count = count if count.isdigit() or not count else count.rpartition("_x")[2]  # another card's name
        meant = f"{family}_x{count or 8}"
    else:
        meant = next((one for one in sorted(topology_names(), key=len, reverse=True) if one in name), "")
    return meant if requested_cluster(meant) is not None else ""


def _normal_form(text: str) -> str:
    return re.sub(r"[-. ]", "_", text.lower())


def made_names() -> str:
    """Return which clusters may be written besides those with a file, for errors."""
    first, *others = CLUSTER_FAMILIES
    return (
        f"{first}_xN (N from 1 to {MAX_GPUS}), also {', '.join(others)}, or with links, as blitz_a; own: "
        "FILE.yaml of a cluster, FILE.yaml_xN of a GPU, or --config-dir DIR with cluster/NAME.yaml"
    )
