"""All-reduce times of the catalogue by GPU, ranks and engine version: measured, NCCL alone, or rough."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from hwmodels.catalogue import ALL_REDUCE_FILE, gpu_all_reduce, gpu_named, read_yaml
from hwmodels.step_times.all_reduce import AllReduce, RankTimes, Stretch

SOURCE: Final = "ai-dynamo/aiconfigurator (Apache-2.0)"
NCCL: Final = "nccl"
_ROUGH: Final = "rough, "


class Imitated(NamedTuple):
    """The engine that a run imitates."""

    engine: str
    version: str

    def __str__(self) -> str:
        return f"{self.engine} {self.version}"


def load_all_reduce(gpu_name: str, imitated: Imitated | None = None) -> AllReduce:
    """All-reduce times between GPUs of this kind; a GPU without measurements knows one rank only.

    Of several engine versions the one of ``imitated`` is used, else the newest. Times not measured in that
    engine, on that GPU, say so in their label.
    """
    gpu_name = gpu_named(gpu_name)
    declared = gpu_all_reduce(gpu_name)
    if "same_as" in declared:
        other = declared["same_as"]
        all_reduce = load_all_reduce(other, imitated)
        ranks = {tp: _taken_over(gpu_name, other, tp, times) for tp, times in all_reduce.ranks.items()}
        return AllReduce(gpu_name, MappingProxyType(ranks))
    ranks = {int(tp): _rough(gpu_name, int(tp), declared) for tp in declared.get("alpha_s", ())}
    entries = [entry for entry in read_yaml(ALL_REDUCE_FILE) if entry["gpu"] == gpu_name]
    for entry in sorted(entries, key=lambda entry: _fitness(entry, imitated)):
        for tp, times in entry["ranks"].items():
            stretches = tuple(
                Stretch(int(size), float(s), float(rate)) for size, s, rate in times["stretches"]
            )
            label = measured_label(gpu_name, int(tp), entry["engine"], entry["version"], imitated)
            ranks[int(tp)] = RankTimes(stretches, _measured_source(entry, times), label)
    return AllReduce(gpu_name, MappingProxyType(ranks))


def measured_label(gpu: str, tp: int, engine: str, version: str, imitated: Imitated | None) -> str:
    """The label of measured all-reduces from another engine than the imitated one; else empty."""
    if engine == NCCL:
        return f"all-reduce of {tp} {gpu}: NCCL {version} measured alone, in no engine"
    if imitated is None or imitated == (engine, version):
        return ""
    return f"all-reduce of {tp} {gpu}: measured in {engine} {version}, this run imitates {imitated}"


def _fitness(entry: Mapping[str, Any], imitated: Imitated | None) -> tuple[bool, bool, list[int]]:
    """Sort key; the last wins: an engine before NCCL alone, then the imitated version, then the newest."""
    same = imitated == (entry["engine"], entry["version"])
    return entry["engine"] != NCCL, same, _numbers(entry["version"].split("."))


def _numbers(parts: Iterable[str]) -> list[int]:
    return [int(part) for part in parts if part.isdigit()]


def _measured_source(entry: Mapping[str, Any], times: Mapping[str, Any]) -> str:
    errors = times["errors_percent"]
    name = "NCCL" if entry["engine"] == NCCL else entry["engine"]
    return (
        f"{len(times['stretches'])} stretches fitted to all-reduces measured in {name} {entry['version']} by "
        f"{SOURCE}; off by {errors['mean']:.1f} % on average, {errors['held_out_mean']:.1f} % at sizes left "
        "out"
    )


def _rough(gpu: str, tp: int, declared: Mapping[str, Any]) -> RankTimes:
    """One start and one bus bandwidth: a ring moves 2(tp-1)/tp of the message over each rank's link.

    Where more ranks have more links between them, there is one bandwidth for each number of ranks.
    """
    rates = declared["bus_bandwidth_bytes_per_s"]
    bus = float(rates[tp] if isinstance(rates, Mapping) else rates)
    stretch = Stretch(0, float(declared["alpha_s"][tp]), 2 * (tp - 1) / tp / bus)
    source: str = declared["source"]
    return RankTimes((stretch,), source, f"all-reduce of {tp} {gpu} is rough: {source.removeprefix(_ROUGH)}")


def _taken_over(gpu: str, other: str, tp: int, times: RankTimes) -> RankTimes:
    label = f"all-reduce of {tp} {gpu} is that of {other}, not measured on it"
    return RankTimes(times.stretches, f"as {other}: {times.source}", label)
