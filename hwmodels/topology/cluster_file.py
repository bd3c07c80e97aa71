"""Clusters in YAML: named ones beside the GPU catalogue, others by path; every key of both is checked."""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn

from hwmodels.catalogue import FOLDER, gpu_names, known_gpu
from hwmodels.errors import HardwareError
from hwmodels.gpus.gpu_file import OWN, is_gpu_file
from hwmodels.reading import read_limited
from hwmodels.topology.link import LINK_KINDS
from hwmodels.topology.spec import ClusterSpec, Leaves, LinkClass, Rate, hosts_x_gpus, shown
from hwmodels.yaml_text import users_yaml

# Default efficiency (share of the datasheet rate) and latency of each kind of link.
# A cluster file can override each of them, with its own source.

_COUNTED: Final = "the NICs' efficiency already counts it"
_STATED: Final = "rates of storage and host memory are given as read by a program"
_ROUGH: Final = "rough, the order of magnitude of the hardware"
_NVLINK: Final = (
    "broadcast of 16 GB at 1.6 Tbps, 80 ms by the datasheet, takes 120 ms (BlitzScale, OSDI 2025)"
)
_PCIE: Final = (
    "48 GB from host memory over 2 x 128 Gbps, 1.5 s by the datasheet, take 2.0 s "
    "(BlitzScale, OSDI 2025, Figure 21, AllCache)"
)
_RDMA: Final = (
    "14 GB at 200 Gbps, 560 ms by the datasheet, take 650 ms (first version of the BlitzScale paper)"
)

# About a microsecond from GPU to GPU over either network, 0.3 us through a switch, 0.1 ms for an SSD's first
# block and 10 ms for a store's first answer. Loads take milliseconds at least, so none of these matters.
DEFAULT_CLASSES: Final = MappingProxyType(
    {
        "ssd": LinkClass(1.0, _STATED, 1e-4, _ROUGH),
        "remote": LinkClass(1.0, _STATED, 1e-2, _ROUGH),
        "dram": LinkClass(1.0, _STATED, 1e-7, _ROUGH),
        "pcie": LinkClass(0.75, _PCIE, 5e-7, _ROUGH),
        "pcie_switch": LinkClass(0.75, _PCIE, 1.5e-7, _ROUGH),
        "nvlink": LinkClass(0.67, _NVLINK, 1e-6, _ROUGH),
        "nic": LinkClass(0.86, _RDMA, 1e-6, _ROUGH),
        "leaf": LinkClass(1.0, _COUNTED, 3e-7, _ROUGH),
        "spine": LinkClass(1.0, _COUNTED, 3e-7, _ROUGH),
    }
)


_BITS_PER_BYTE: Final = 8
_MOST_BYTES: Final = 1 << 18  # shipped files have less than 2 kB
_LONGEST_VALUE: Final = 2000  # characters
_LONGEST_BASE: Final = 8  # files, each the base of the one before: more indicates a cycle
_SIZED: Final = re.compile(r"(.+)_([1-9][0-9]{0,5})x([1-9][0-9]{0,5})")
_SIZED_FILE: Final = re.compile(r"(.+\.ya?ml)(?:_[1-9][0-9]{0,5}x[1-9][0-9]{0,5})?")
_RATE_KEYS: Final = ("gbps", "bytes_per_s", "source")
_EXTRAS: Final = {
    "pcie": ("shared_by",),
    "pcie_peer": (),
    "nvlink": ("domain_gpus",),
    "nic": ("gpus",),
    "ssd": ("per",),
    "remote": ("per",),
    "dram": (),
    "kv": (),
}
_NEEDED: Final = ("hosts", "gpus_per_host", "gpu", "source", "host_memory", "pcie")
_KEYS: Final = (
    *_NEEDED,
    *(key for key in _EXTRAS if key != "pcie"),
    "leaf",
    "cpu",
    "efficiency",
    "latency_s",
    "base",
)
_LEAF_KEYS: Final = ("hosts", "spines", "oversubscription", "rails", "source")


def cluster_names() -> tuple[str, ...]:
    """Names of all clusters with a file beside the GPU catalogue, sorted."""
    return tuple(sorted(item.name[:-5] for item in _folder().iterdir() if item.name.endswith(".yaml")))


def load_cluster(name: str) -> ClusterSpec:
    """The cluster called ``name``, the one in the YAML file at that path, or either as ``NAME_HxG``.

    ``NAME_HxG`` is H hosts of G GPUs, otherwise as NAME. HardwareError for an unknown name and for an
    unusable file; it names the file and the key.
    """
    sized = _SIZED.fullmatch(name)
    if sized and name not in cluster_names():
        return hosts_x_gpus(int(sized[2]), int(sized[3]), load_cluster(sized[1]))
    file, text = _text(name)
    own = Path(name).stem if file == name else name
    return parse_cluster(own, file, text)


def is_cluster_file(text: str) -> bool:
    """Whether this is the path of a cluster's file, also with ``_HxG`` behind it; a GPU's file is none.

    Also true for a file that is there and cannot be read, which ``load_cluster`` refuses.
    """
    path = _SIZED_FILE.fullmatch(text)
    if path is None or not Path(path[1]).is_file():
        return False
    import yaml

    try:
        found = users_yaml(read_limited(Path(path[1]), _MOST_BYTES))
    except (OSError, ValueError, yaml.YAMLError):
        return True
    return not isinstance(found, dict) or not {"hosts", "base", "gpus_per_host"}.isdisjoint(found)


def parse_cluster(name: str, file: str, text: str) -> ClusterSpec:
    """The cluster that ``text`` (YAML) describes; ``file`` is its name in errors. Raises HardwareError."""
    found = _with_base(_At(file), text, 0)
    at = _At(file)
    at.keys(found, _KEYS, _NEEDED)
    written = str(found["gpu"])
    gpu = written if is_gpu_file(written) else known_gpu(written)
    if gpu is None:
        at.inside("gpu").refuse(found["gpu"], f"one of {', '.join(gpu_names())}, or {OWN}")
    memory = at.inside("host_memory").keys(found["host_memory"], ("bytes", "source"), ("bytes", "source"))
    sections = {key: _section(at.inside(key), found[key], key) for key in _EXTRAS if key in found}

    def extra(key: str, name: str, default: Any) -> Any:
        return found[key].get(name, default) if key in found else default

    return ClusterSpec(
        name=name,
        file=file,
        gpu=gpu,
        hosts=at.inside("hosts").count(found["hosts"]),
        gpus_per_host=at.inside("gpus_per_host").count(found["gpus_per_host"]),
        host_memory_bytes=at.inside("host_memory.bytes").count(memory["bytes"]),
        host_memory_source=at.inside("host_memory.source").text(memory["source"]),
        source=at.inside("source").text(found["source"]),
        classes=_classes(at, found),
        leaves=_leaves(at.inside("leaf"), found["leaf"]) if "leaf" in found else Leaves(),
        pcie_shared_by=extra("pcie", "shared_by", 1),
        nvlink_domain_gpus=extra("nvlink", "domain_gpus", None),
        cpu_cores=_cores(at.inside("cpu"), found["cpu"]) if "cpu" in found else None,
        gpus_per_nic=extra("nic", "gpus", 1),
        ssd_per=extra("ssd", "per", "gpu"),
        remote_per=extra("remote", "per", "host"),
        **sections,
    )


def _cores(at: "_At", found: Any) -> int:
    """CPU cores of a host, which need a source."""
    cpu = at.keys(found, ("cores", "source"), ("cores", "source"))
    at.inside("source").text(cpu["source"])
    return at.inside("cores").count(cpu["cores"])


@dataclass(frozen=True, slots=True)
class _At:
    """The place of a value in a file, for error messages."""

    file: str
    key: str = ""

    def inside(self, key: str) -> "_At":
        return _At(self.file, f"{self.key}.{key}" if self.key else key)

    def refuse(self, value: Any, wanted: str) -> NoReturn:
        raise HardwareError(f"{self.file}: {self.key or 'the file'} is {shown(value)}; write {wanted}")

    def keys(self, value: Any, known: tuple[str, ...], needed: tuple[str, ...]) -> dict[str, Any]:
        """``value`` as a mapping with the needed keys and no unknown ones."""
        where = f"{self.file}: {self.key}" if self.key else f"{self.file}:"
        if not isinstance(value, dict):
            self.refuse(value, f"a mapping with {', '.join(needed or known)}")
        if unknown := [key for key in value if key not in known]:
            near = difflib.get_close_matches(str(unknown[0]), known, n=1, cutoff=0.6)
            hint = f"{near[0]!r} if that is meant, or " if near else ""
            raise HardwareError(
                f"{where} has the unknown key {unknown[0]!r}; write {hint}one of {', '.join(known)}"
            )
        if missing := [key for key in needed if key not in value]:
            raise HardwareError(f"{where} lacks {missing[0]!r}; write {', '.join(needed)}")
        return value

    def text(self, value: Any) -> str:
        """``value`` as a non-empty text."""
        if not isinstance(value, str) or not value.strip():
            self.refuse(value, "a text that says where the numbers are from")
        return " ".join(value.split())

    def number(self, value: Any) -> float:
        """``value`` as a finite number."""
        if type(value) not in (int, float) or not -1e300 < value < 1e300:
            # YAML 1.1 reads 1e9 as text.
            self.refuse(value, "a number, such as 100 or 1.0e+9 (with point and sign)")
        return float(value)

    def count(self, value: Any) -> int:
        """``value`` as a whole number; 1.0e+12 is one."""
        if type(value) is float and value.is_integer():
            return int(value)
        if type(value) is not int:
            self.refuse(value, "a whole number of at least 1")
        return int(value)


def _section(at: _At, value: Any, key: str) -> Rate:
    found = at.keys(value, (*_RATE_KEYS, *_EXTRAS[key]), ("source",))
    units = [unit for unit in ("gbps", "bytes_per_s") if unit in found]
    if len(units) != 1:
        raise HardwareError(f"{at.file}: {at.key} needs one rate; write either gbps (bits) or bytes_per_s")
    number = at.inside(units[0]).number(found[units[0]])
    source = at.inside("source").text(found["source"])
    return Rate(number * 1e9 / _BITS_PER_BYTE if units[0] == "gbps" else number, source)


def _leaves(at: _At, value: Any) -> Leaves:
    found = at.keys(value, _LEAF_KEYS, ("source",))
    rails = found.get("rails", False)
    if not isinstance(rails, bool):
        at.inside("rails").refuse(rails, "true or false")
    return Leaves(
        hosts=found.get("hosts"),
        spines=found.get("spines", 1),
        oversubscription=at.inside("oversubscription").number(found.get("oversubscription", 1.0)),
        rails=rails,
        source=at.inside("source").text(found["source"]),
    )


def _classes(at: _At, found: Mapping[str, Any]) -> dict[str, LinkClass]:
    """The default of every kind, overridden by the file."""
    classes = dict(DEFAULT_CLASSES)
    for kind, value, source in _values(at.inside("efficiency"), found.get("efficiency", {})):
        classes[kind] = replace(classes[kind], efficiency=value, efficiency_source=source)
    for kind, value, source in _values(at.inside("latency_s"), found.get("latency_s", {})):
        classes[kind] = replace(classes[kind], latency_s=value, latency_source=source)
    return classes


def _values(at: _At, value: Any) -> Iterator[tuple[str, float, str]]:
    """(kind of link, number, source) of a mapping from kinds."""
    for kind, entry in at.keys(value, LINK_KINDS, ()).items():
        inner = at.inside(kind)
        inner.keys(entry, ("value", "source"), ("value", "source"))
        yield kind, inner.inside("value").number(entry["value"]), inner.inside("source").text(entry["source"])


def _with_base(at: _At, text: str, depth: int) -> dict[str, Any]:
    """The file's mapping over that of its ``base``; a key with null removes the base's."""
    found = _mapping(at, text)
    if isinstance(found.get("gpu"), dict):  # the GPU's numbers, which are then read by the file's path
        found["gpu"] = at.file
    if "base" not in found:
        return found
    name = at.inside("base").text(found.pop("base"))
    if depth == _LONGEST_BASE:
        raise HardwareError(f"{at.file}: base {name!r} refers back to itself; write a base that has no base")
    file, base_text = _text(name)
    merged = {**_with_base(_At(file), base_text, depth + 1), **found}
    return {key: value for key, value in merged.items() if value is not None}


def _mapping(at: _At, text: str) -> dict[str, Any]:
    return dict(_parsed(at.file, text))


@cache
def _parsed(file: str, text: str) -> Mapping[str, Any]:
    """The same text is parsed once: a run asks for its cluster some ten times."""
    import yaml

    at = _At(file)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        _check_node(at, node, set())
        found = users_yaml(text.encode())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise HardwareError(
            f"{at.file} is not YAML ({reason}); write keys and values as in a shipped file"
        ) from None
    return MappingProxyType(dict(at.keys(found, _KEYS, ())))


def _check_node(at: _At, node: Any, seen: set[int]) -> None:
    """Refuse what YAML accepts silently: duplicate keys (the last one wins), and aliases.

    A few nested aliases (``*name``) can stand for any number of values. ``seen``: identities of the nodes
    before this one.
    """
    import yaml

    if id(node) in seen:
        raise HardwareError(f"{at.file}: {at.key} has an alias (*NAME); write the value itself")
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode) and len(node.value) > _LONGEST_VALUE:
        raise HardwareError(f"{at.file}: {at.key} has {len(node.value)} characters; write a shorter value")
    for entry in node.value if isinstance(node, yaml.SequenceNode) else ():
        _check_node(at, entry, seen)
    names: set[str] = set()
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        name = str(key.value)
        if name in names:
            raise HardwareError(f"{at.file}: {at.inside(name).key} occurs twice; write it once")
        names.add(name)
        _check_node(at.inside(name), value, seen)


def _text(name: str) -> tuple[str, str]:
    """The display name of this name or path, and the file's text."""
    if name.endswith((".yaml", ".yml")):
        try:
            return name, read_limited(Path(name), _MOST_BYTES).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise HardwareError(
                f"{name} cannot be read ({reason}); write the path of a cluster file"
            ) from None
    known = cluster_names()
    if name not in known:
        near = difflib.get_close_matches(name.lower().replace("-", "_").replace(".", "_"), known, 1, 0.0)[0]
        raise HardwareError(
            f"unknown cluster {name!r}; write {near!r}, another of {', '.join(known)}, one of them as "
            "NAME_HxG for H hosts of G GPUs, or the path of a .yaml file"
        )
    return f"{name}.yaml", _shipped(name)


@cache
def _shipped(name: str) -> str:
    return (_folder() / f"{name}.yaml").read_text(encoding="utf-8")


def _folder() -> Path:
    return FOLDER / "clusters"
