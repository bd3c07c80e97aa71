"""python -m scripts.policies_page: writes docs/reference/POLICIES from the protocols of policies.

A section for each kind of policy: its methods with what they may return (the ``Question`` that checks the
answer), and then every class that it is given or returns, with all fields. Meanings are the docstrings'.
"""

import dataclasses
import re
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from inspect import get_annotations
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

from servetwin.config.policy.groups import POLICY_GROUPS
from serving.engine import fleet
from serving.parameters import cache_answers
from serving.protocols import (
    batch,
    live,
    live_answers,
    migration,
    provision_answers,
    scale_answers,
    scaling,
    splitting,
    stage_answers,
)
from serving.protocols.policy_faults import Question

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "reference" / "POLICIES.md"
_MARKED: Final = re.compile(r"<!-- policies -->\n.*<!-- end of policies -->", re.DOTALL)
# Classes of the control plane that a policy passes on and does not read.
_OPAQUE: Final = ("HostCaches", "Usage", "Load", "Evicted", "Part", "Queue")
# Fields that mean the same in every class; a class's own docstring goes first.
COMMON: Final = {
    "id": "the number of the instance, replica, request, host or GPU",
    "now_ns": "the present",
    "model": "its name",
    "role": "prefill, decode or both",
    "state": "serving, loading (waits for parameters, or starts), draining (takes nothing new) or "
    "terminating (draining, and to be lost)",
    "replica": "the number of the instance",
    "host": "the number of the host",
    "stage": "the index of the stage",
    "priority": "larger is more urgent; 0 for all if the engines ignore priorities",
    "reason": "a str with the numbers that decided, not empty; the journal and the report show it",
}


_FEW: Final = 5  # a class with at most so many fields has one line
_CODE: Final = (property, FunctionType)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of policy: its group, the modules whose questions check its answers, its optional protocols.

    rare: few people write one, so the page names its views and the files that have their fields.
    """

    title: str
    group: str
    answers: tuple[ModuleType, ...]
    optional: tuple[type, ...] = ()
    others: tuple[type, ...] = ()
    rare: bool = False

    @property
    def protocols(self) -> tuple[type, ...]:
        """The required one, and those that a class may have besides."""
        return (POLICY_GROUPS[self.group].protocol, *self.optional, *self.others)


KINDS: Final = (
    Kind(
        "Dispatcher",
        "dispatch",
        (fleet, splitting),
        (splitting.SupportsConvert, splitting.SupportsDecodePlaces),
    ),
    Kind("Admission", "admission", (fleet,)),
    Kind("Batcher", "batcher", (batch,)),
    Kind(
        "Scaler",
        "scaler",
        (scale_answers,),
        (scaling.SupportsNoChangeBounds, scaling.SupportsNoChangeUntil),
    ),
    Kind("Provisioner", "provision", (provision_answers,), rare=True),
    Kind("Live policy", "live", (live_answers,), others=(live.LiveScheduler,), rare=True),
    Kind("Migrator", "migration", (migration,), rare=True),
    Kind("Stage scaler", "stages", (stage_answers,), rare=True),
    Kind("Cache", "cache", (cache_answers,), rare=True),
)
# Of these the page has names and file alone.
NAMED: Final = (splitting.SplitView, POLICY_GROUPS["cache"].protocol)


def with_policies(page: str) -> str:
    """Return the page's text with its sections as the code declares them."""
    return _MARKED.sub(lambda _: "\n".join(_sections()), page)


def _sections() -> Iterator[str]:
    yield "<!-- policies -->"
    yield from (f"* `{name}`: {meaning}." for name, meaning in COMMON.items())
    yield ""
    shown = set[type]()
    for kind in KINDS:
        yield from _section(kind, shown)
    yield "<!-- end of policies -->"


def _section(kind: Kind, shown: set[type]) -> Iterator[str]:
    """Yield the methods of a kind, and the classes that no section before it has."""
    takes = ", ".join(f"`{name}`" for name in POLICY_GROUPS[kind.group].provided)
    told = f"`system/{kind.group}`. {summary(kind.protocols[0])} Its constructor may take {takes}."
    methods = _methods(kind.protocols[0], kind.answers)
    if kind.protocols[0] in NAMED:
        names = ", ".join(f"`{name}`" for name in members(kind.protocols[0]))
        methods = iter([f"Methods: {names}, in `{_file(kind.protocols[0])}`."])
    yield from (f"## {kind.title}", "", told, "", *methods, "")
    for protocol in kind.protocols[1:]:
        who = "Optional" if protocol in kind.optional else f"`{protocol.__name__}`"
        yield from (f"{who}. {summary(protocol)}", "", *_methods(protocol, kind.answers), "")
    classes = [cls for cls in _all_of(_given(kind)) if cls not in shown and cls not in kind.protocols]
    if named := [cls for cls in classes if kind.rare or cls in NAMED]:
        yield from (f"Fields: {'; '.join(_files(named))}.", "")
    classes = [cls for cls in classes if cls not in named]
    shown.update(classes)
    for cls in classes:
        if not _is_small(cls):
            yield from _fields(cls)
    if small := [cls for cls in classes if _is_small(cls)]:
        yield from ("With few fields:", "", *map(_line, small), "")


def _files(classes: Iterable[type]) -> list[str]:
    """Return the classes by the file that declares them."""
    files = dict[str, list[str]]()
    for cls in classes:
        files.setdefault(_file(cls), []).append(f"`{cls.__name__}`")
    return [f"{', '.join(names)} in `{file}`" for file, names in files.items()]


def _file(cls: type) -> str:
    return f"{cls.__module__.replace('.', '/')}.py"


def _methods(protocol: type, answers: Iterable[ModuleType]) -> Iterator[str]:
    questions = {q.method: q for module in answers for q in vars(module).values() if isinstance(q, Question)}
    first = dict[str, str]()  # what must be returned -> the method that says it
    for name, meaning in meanings(protocol).items():
        line = f"* `{_signature(protocol, name)}`: {meaning}"
        if name in questions and (wanted := _short(questions[name].must_return)) != "nothing":
            verb = "Must be" if questions[name].is_attribute else "Must return"
            said = (
                f"what `{first[wanted]}` must" if len(wanted.split()) > _FEW and wanted in first else wanted
            )
            first.setdefault(wanted, name)
            line += f" {verb} {said}."
        yield line


def _fields(cls: type) -> Iterator[str]:
    """Yield a class: members with the same meaning in one line, those of ``COMMON`` in the last."""
    yield from (f"### {cls.__name__}", "", summary(cls), "")
    told = dict[str, list[str]]()
    for name, meaning in meanings(cls).items():
        if meaning:
            told.setdefault(meaning, []).append(f"`{_signature(cls, name)}`")
    yield from ("|field|meaning|", "|---|---|")
    yield from (f"|{', '.join(names)}|{meaning}|" for meaning, names in told.items())
    if common := [f"`{name}`" for name, meaning in meanings(cls).items() if not meaning]:
        yield f"|{', '.join(common)}|[as above](#policies)|"
    yield ""


def _is_small(cls: type) -> bool:
    return len(members(cls)) <= _FEW and not any(
        isinstance(vars(cls).get(name), _CODE) for name in members(cls)
    )


def _line(cls: type) -> str:
    """A class with few fields in one line."""
    told = dict[str, list[str]]()
    for name, meaning in meanings(cls).items():
        if meaning:
            told.setdefault(meaning, []).append(f"`{name}`")
    fields = [f"{', '.join(names)}: {meaning}" for meaning, names in told.items()]
    return " ".join([f"* `{cls.__name__}({', '.join(members(cls))})`: {summary(cls)}", *fields])


def _given(kind: Kind) -> list[type]:
    """The classes in the types of a kind's protocols."""
    hints = [h for cls in kind.protocols for name in members(cls) for h in _hints(cls, name).values()]
    return list(dict.fromkeys(_classes(hints)))


def members(cls: type) -> list[str]:
    """The public fields, properties and methods of a view or a fact, in the order of its code."""
    if dataclasses.is_dataclass(cls):
        fields = [one.name for one in dataclasses.fields(cls)]
    else:
        fields = list(getattr(cls, "_fields", ()) or get_annotations(cls))
        fields = fields or list(getattr(cls, "__slots__", ()))
    own = [name for name, value in vars(cls).items() if isinstance(value, _CODE)]
    if fields and issubclass(cls, tuple):
        own = []
    return [name for name in dict.fromkeys((*fields, *own)) if name[0] != "_"]


def meanings(cls: type) -> dict[str, str]:
    """Map every member to what its own docstring or that of its class says of it; empty: neither does."""
    told = _told(cls)
    return {name: _plain(told.get(name) or _own(vars(cls).get(name))) for name in members(cls)}


def untold(cls: type) -> list[str]:
    """The members of which neither the class nor ``COMMON`` says what they mean."""
    return [name for name, meaning in meanings(cls).items() if not meaning and name not in COMMON]


def summary(cls: type) -> str:
    """The first paragraph of a class's docstring, and the others as far as they speak of no field."""
    spot = _spot(cls)
    texts = [text[: first.start()] if (first := spot.search(text)) else text for text in _paragraphs(cls)]
    return " ".join(_plain(text) for text in texts if text.strip())


def _own(value: object) -> str:
    """The first paragraph of the docstring of a property or a method."""
    made = value.fget if isinstance(value, property) else value
    doc = made.__doc__ if isinstance(made, FunctionType) else ""
    return " ".join((doc or "").partition("\n\n")[0].split())


def _told(cls: type) -> dict[str, str]:
    """Map members to their part of the class's docstring: ````name``: meaning`` or ``name: meaning``."""
    told = dict[str, str]()
    for text in _paragraphs(cls):
        spots = list(_spot(cls).finditer(text))
        ends = [*(spot.start() for spot in spots[1:]), len(text)]
        for spot, end in zip(spots, ends, strict=False):
            told |= dict.fromkeys(re.findall(r"\w+", spot[1]), text[spot.end() : end].strip(" .;"))
    return told


def _spot(cls: type) -> "re.Pattern[str]":
    one = "|".join(members(cls)) or "-"
    one = rf"(?:``(?:{one})``|\b(?:{one})\b)"
    return re.compile(rf"(?:^|(?<=[.;] ))({one}(?:, {one})*): ")


def _paragraphs(cls: type) -> list[str]:
    return [" ".join(part.split()) for part in (cls.__doc__ or "").split("\n\n")]


def _plain(text: str) -> str:
    text = text.strip().removesuffix(".").replace("``", "`")
    return f"{text}." if text else ""


def _short(text: str) -> str:
    """An answer's words without what the page says once: that a reason is a str that is not empty."""
    text = text.replace("serving.protocols.migration.", "")
    return re.sub(r",(?: and)? a str that is not empty", "", text)


def _signature(cls: type, name: str) -> str:
    """The name, with its arguments, and with the classes of the page that a field has."""
    hints = _hints(cls, name)
    answer = hints.pop("return", None)
    if isinstance(vars(cls).get(name), FunctionType):
        return f"{name}({', '.join(hints)})"
    classes = dict.fromkeys(one.__name__ for one in _classes([answer]))
    return f"{name}: {', '.join(classes)}" if classes else name


def _hints(cls: type, name: str) -> dict[str, Any]:
    """The types of a member; that of a field under ``return``."""
    value = vars(cls).get(name)
    if isinstance(value, _CODE):
        return typing.get_type_hints(value.fget if isinstance(value, property) else value)
    hints = typing.get_type_hints(cls)
    if name not in hints:
        hints = typing.get_type_hints(vars(cls).get("__init__", object))
    return {"return": hints.get(name)}


def _classes(hints: Iterable[Any]) -> Iterator[type]:
    """Yield this project's classes in type hints."""
    for hint in hints:
        if isinstance(hint, type) and hint.__module__.startswith("serving") and hint.__name__ not in _OPAQUE:
            yield hint
        yield from _classes(typing.get_args(hint))


def _all_of(first: Iterable[type]) -> list[type]:
    """The classes, and those of their members, each once."""
    found = dict[type, None]()
    waiting = list(first)
    while waiting:
        cls = waiting.pop(0)
        if cls not in found:
            found[cls] = None
            waiting += _classes(hint for name in members(cls) for hint in _hints(cls, name).values())
    return list(found)


def shown_classes(kinds: Iterable[Kind] = KINDS) -> list[type]:
    """Every protocol of these kinds, and every class that they are given or return."""
    kinds = list(kinds)
    protocols = [protocol for kind in kinds for protocol in kind.protocols]
    return list(dict.fromkeys((*protocols, *(cls for kind in kinds for cls in _all_of(_given(kind))))))


if __name__ == "__main__":
    PAGE.write_text(with_policies(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
