"""A layout: the kind of GPUs, how many form one instance, and the system that serves on them."""

import math
import re
from dataclasses import dataclass
from typing import Final

from hwmodels.gpus.gpu_file import OWN, is_gpu_file
from hwmodels.topology.cluster_file import is_cluster_file, load_cluster
from servetwin.config.compose.clusters import CLUSTER_FAMILIES, hardware_named, near_family, topology_names
from servetwin.config.overrides import closest
from serving.vocabulary.errors import UserError

_SIZED: Final = re.compile(r"([a-z0-9_]+?)(?:_[1-9][0-9]*x([1-9][0-9]*))?")
_SIZED_FILE: Final = re.compile(r"(.+\.ya?ml)(?:_[1-9][0-9]*x([1-9][0-9]*))?")


class DoesNotFit(UserError):
    """Instances with this number of GPUs do not fill whole hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """``hardware``: a GPU's name, or a cluster of the catalogue, whose links are then modelled.

    ``words``: further differences to other layouts, such as ``system=distserve_full``. ``step``: the number
    of GPUs by which its size grows, which is that of an instance or of a host, whichever is more. ``split``:
    the share of the instances that prefill, while the others decode; with 0 the system's own. ``instances``:
    the least number of instances with which it runs. ``host``: GPUs of a host, where links are modelled.
    """

    hardware: str
    tp: int
    words: tuple[str, ...]
    step: int
    pp: int = 1
    split: float = 0.0
    instances: int = 1
    host: int = 1

    @property
    def least(self) -> int:
        """GPUs of the smallest size: the least multiple of ``step`` that holds ``instances``."""
        return math.ceil(self.instances * self.tp * self.pp / self.step) * self.step

    def words_of(self, gpus: int) -> tuple[str, ...]:
        """Return the words of a run on ``gpus`` GPUs, which must be a multiple of ``step``."""
        if _without_links(self.hardware):
            cluster = f"{self.hardware}_x{gpus}"
        else:
            cluster = f"{self.hardware}_{gpus // self.host}x{self.host}"
        stages = (f"model.pp={self.pp}",) if self.pp > 1 else ()
        return (f"cluster={cluster}", f"model.tp={self.tp}", *stages, *self._roles(gpus), *self.words)

    def _roles(self, gpus: int) -> tuple[str, ...]:
        if not self.split:
            return ()
        instances = gpus // (self.tp * self.pp)
        prefill = min(max(round(self.split * instances), 1), max(instances - 1, 1))
        decode = max(instances - prefill, 1)
        return (f"system.instances.prefill={prefill}", f"system.instances.decode={decode}")

    @property
    def name(self) -> str:
        """Display name: ``h100, tp 4, system=vllm``."""
        stages = [f"pp {self.pp}"] if self.pp > 1 else []
        roles = [f"{self.split:.0%} prefill"] if self.split else []
        return ", ".join([self.hardware, f"tp {self.tp}", *stages, *roles, *self.words])

    def sizes(self, most_gpus: int) -> list[int]:
        """Return the GPUs of every size up to ``most_gpus``."""
        return list(range(self.least, most_gpus + 1, self.step))


def _without_links(hardware: str) -> bool:
    """Return whether it is GPUs of one kind and no cluster of the catalogue."""
    if is_cluster_file(hardware):
        return False
    return hardware in CLUSTER_FAMILIES or is_gpu_file(hardware)


def layout_of(
    *, hardware: str, tp: int, pp: int, words: tuple[str, ...], split: float = 0.0, instances: int = 1
) -> Layout:
    """Return the layout. UserError for unknown hardware, and for a split that is not a share."""
    if tp < 1 or pp < 1 or not 0 <= split < 1:
        raise UserError("model.tp and model.pp are at least 1 and split a share: write model.tp=1 split=0.5")
    hardware = hardware_named(hardware)
    if _without_links(hardware):
        return Layout(
            hardware=hardware, tp=tp, words=words, step=tp * pp, pp=pp, split=split, instances=instances
        )
    sized = (_SIZED_FILE if is_cluster_file(hardware) else _SIZED).fullmatch(hardware)
    if sized is None or not (is_cluster_file(hardware) or sized[1] in topology_names()):
        gpus, clusters = ", ".join(CLUSTER_FAMILIES), ", ".join(topology_names())
        near = near_family(hardware) or closest(hardware, [*CLUSTER_FAMILIES, *topology_names()])
        hint = f"gpu={near} if that is meant, or " if near else ""
        raise UserError(
            f"gpu={hardware} is unknown: write {hint}a GPU of {gpus}, a cluster of {clusters}, or {OWN}"
        )
    spec = load_cluster(f"{sized[1]}_1x{sized[2]}" if sized[2] else sized[1])
    per_host = spec.gpus_per_host
    if not spec.holds_instances_of(tp):
        raise DoesNotFit(f"model.tp={tp} does not fit hosts of {per_host} GPUs: write {spec.instance_sizes}")
    return Layout(
        hardware=sized[1],
        tp=tp,
        words=words,
        step=max(per_host, tp),
        host=per_host,
        pp=pp,
        split=split,
        instances=instances,
    )


def hardware_of_cluster(name: str) -> str:
    """Return ``gpu=`` for ``cluster=name``: h100 for h100_x8, blitz_a for blitz_a_2x8."""
    family = re.sub(r"_x[0-9]+$", "", name)
    sized = _SIZED.fullmatch(name)
    if is_gpu_file(family):
        return family
    if is_cluster_file(name) and (file := _SIZED_FILE.fullmatch(name)):
        return file[1] if int(file[2]) == gpus_per_host(file[1]) else f"{file[1]}_1x{file[2]}"
    if family in CLUSTER_FAMILIES or sized is None or not sized[2] or sized[1] not in topology_names():
        return family if family in topology_names() else near_family(family) or family
    return sized[1] if int(sized[2]) == gpus_per_host(sized[1]) else f"{sized[1]}_1x{sized[2]}"


def gpus_per_host(name: str) -> int:
    """Return the GPUs of a host in a cluster of the catalogue, whose hosts are all alike."""
    spec = load_cluster(name)
    return spec.gpus_per_host
