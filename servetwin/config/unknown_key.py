"""Says what an unknown key may mean: another tool's word, a server's flag, a typing error in its group."""

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final

from servetwin.config.meanings import meant_words
from servetwin.config.overrides import echo
from serving.vocabulary.errors import UserError

_LIKE: Final = 0.75  # least likeness of names in one group
_MUCH_ALIKE: Final = 0.85  # of names in no group, or in several
_FIXED: Final = (".name", ".policy", ".source")  # they belong to options
_MOST: Final = 3
_MOST_LISTED: Final = 16
# What scalers hold a metric at: KEDA's triggers have a threshold, Kubernetes' and Knative's scalers a target.
SAME_PARAMETERS: Final = {"target": "threshold", "threshold": "target"}


class UnknownParameterError(UserError):
    """The chosen policy or trace does not have the parameter, on a cluster of any size."""


def unknown_key(key: str, known: Iterable[str], kind: str, text: str = "") -> UserError:
    """Return the error for an unknown key, with the one that is meant. ``text``: its value."""
    if key == "workers":
        return UserError(
            "unknown key 'workers' in a simulation, where only realexec has worker processes: "
            "write cluster.gpus=N for cluster=local, or choose a cluster such as cluster=a100_x8"
        )
    names = list(known)
    if key == "gpu" and "cluster" in names:
        return UserError(
            f"unknown key 'gpu' for {kind}: write cluster=GPU_xN, such as cluster=h100_x8 for eight H100s"
        )
    return UserError(f"unknown key '{echo(key)}' for {kind}: {advice(key, names, text)}")


def advice(key: str, names: Sequence[str], text: str = "") -> str:
    """Return what to write instead of an unknown key, as the end of a sentence."""
    from servetwin.config.config import RunConfig  # --help of other commands starts without it
    from servetwin.config.server_flags import key_answer

    of_run = "cluster" in names  # the keys are those of runs, not only a command's own
    if meant := meant_words(key, names, RunConfig):
        return _write(meant)
    if of_run and (told := key_answer(key, text)):
        return told
    if near := near_keys(key, names):
        return _write([f"{name}=VALUE" for name in near])
    if of_run and (told := _near_flag(key)):
        return told
    return _keys_there(key, names)


def _write(words: Sequence[str]) -> str:
    return f"write {' or '.join(words)} if that is meant"


def option_with(group: str, parameter: str) -> str:
    """Return ", or choose" with the options of a group that have the parameter, or the one most like it."""
    from servetwin.config.options import option_file, option_groups
    from servetwin.config.trace_options import trace_parameters

    having: dict[str, list[str]] = {}
    for option in option_groups().get(group, ()):
        traces = group == "trace"  # they have no files
        for name in trace_parameters(option) if traces else option_file(group, option).get("params") or ():
            having.setdefault(name, []).append(option)
    near = difflib.get_close_matches(parameter, list(having), n=1, cutoff=_LIKE)
    if not near:
        return ""
    options = " or ".join(f"{group}={option}" for option in having[near[0]][:_MOST])
    return f", or choose {options}, which takes {group.replace('/', '.')}.{near[0]}"


def _keys_there(key: str, names: Sequence[str]) -> str:
    """Return the advice for a key like no other: a group's keys if the group exists, else the groups."""
    group = key.rpartition(".")[0]
    of_group = [name for name in names if group and name.startswith(f"{group}.") and not _is_fixed(name)]
    if len(of_group) > _MOST_LISTED:
        return f"write a key of {group}, which --help {group} lists"
    if of_group:
        return f"write one of {', '.join(of_group)}"
    tops = sorted({name.partition(".")[0].partition("/")[0] for name in names})
    return f"write a key that starts with {', '.join(tops)}"


def near_keys(key: str, names: Iterable[str]) -> list[str]:
    """Return the keys that differ from ``key`` by a typing error: of its own group, if it has one.

    Without a group: keys without one, and keys whose last part is the same or nearly the same word.
    """
    known = [name for name in names if not _is_fixed(name)]
    owner, _, leaf = key.replace("/", ".").rpartition(".")
    if not owner:
        return _without_group(leaf, known)
    owners = {_parts(name)[0] for name in known}
    beside = [name for name in known if _parts(name)[0] == owner]
    longer = [name for name in beside if _parts(name)[1].startswith(f"{leaf}_")]
    if longer:
        return longer[:_MOST]
    if near := _closest(leaf, beside, _LIKE):
        return near
    top = owner.partition(".")[0]
    if top not in {_top(name) for name in known}:
        return _in_mistyped_group(owner, leaf, known)
    below = [name for name in known if _top(name) == top and _subject(name) in (_subject(key), top)]
    if near := _closest(leaf, below, _MUCH_ALIKE):
        return near
    similar = difflib.get_close_matches(owner, sorted(owners), n=1, cutoff=_MUCH_ALIKE)
    if similar:
        return _closest(leaf, [name for name in known if _parts(name)[0] == similar[0]], _LIKE)
    return _elsewhere(leaf, known)


def _without_group(word: str, known: Sequence[str]) -> list[str]:
    same = [name for name in known if _parts(name)[1] == word]
    if same:
        return same if len(same) <= _MOST else []
    lower = word.lower()
    alone = [name for name in known if "." not in name and "/" not in name]
    if near := difflib.get_close_matches(lower, alone, n=1, cutoff=_LIKE):
        return near
    several = "_" in word  # a word alone is a typing error of another word alone: no timeout of timeout_s
    return _closest(lower, [name for name in known if ("_" in _parts(name)[1]) == several], _MUCH_ALIKE)


def _in_mistyped_group(owner: str, leaf: str, known: Sequence[str]) -> list[str]:
    owners = sorted({_parts(name)[0] for name in known} - {""})
    for group in difflib.get_close_matches(owner, owners, n=_MOST, cutoff=_LIKE):
        if near := _closest(leaf, [name for name in known if _parts(name)[0] == group], _LIKE):
            return near
    return _elsewhere(leaf, known)


def _elsewhere(leaf: str, known: Sequence[str]) -> list[str]:
    """Return the only key of another group with exactly this name of several words."""
    same = [name for name in known if _parts(name)[1] == leaf]
    return same if "_" in leaf and len(same) == 1 else []


def _closest(word: str, names: Iterable[str], cutoff: float) -> list[str]:
    by_leaf: dict[str, str] = {}
    for name in sorted(names):
        by_leaf.setdefault(_parts(name)[1], name)
    return [
        by_leaf[near] for near in difflib.get_close_matches(word.lower(), list(by_leaf), n=1, cutoff=cutoff)
    ]


def _parts(name: str) -> tuple[str, str]:
    """Return a name's group and its last part."""
    *owners, leaf = re.split(r"[./]", name)
    return ".".join(owners), leaf


def _top(name: str) -> str:
    return re.split(r"[./]", name)[0]


def _subject(name: str) -> str:
    """Return what a key is about: the first part, and of ``system`` the part below it too."""
    first, *rest = re.split(r"[./]", name)
    return f"{first}.{rest[0]}" if first == "system" and len(rest) > 1 else first


def _is_fixed(name: str) -> bool:
    return name.endswith(_FIXED) or name in ("kind", "cluster.topology", "trace.synthetic")


def _near_flag(key: str) -> str:
    """Return the answer for a mistyped flag of a server, in the groups where flags are understood."""
    from servetwin.config.server_flags import key_answer, near_flag

    owner, _, last = key.rpartition(".")
    flag = near_flag(f"--{last}")
    name = flag.removeprefix("--").replace("-", "_")
    told = key_answer(f"{owner}.{name}" if owner else name, "") if flag else ""
    return told and (told if told.startswith("write") else f"if {flag} is meant, {told}")
