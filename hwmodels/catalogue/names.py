"""What people call a GPU or a model, as the catalogue's name: in any case, by alias, as on Hugging Face.

A GPU is called what its entry says (``names``): one of ``called``, and beside it any words of ``with``, in
any order (``A100-SXM4-80GB``, ``NVIDIA H100 80GB HBM3``). A word of another card (``H100 PCIe``) fits none.
A model is called by one of the ``huggingface`` names of its entry, with or without the organisation, and a
quantised publication of it by one of ``quantised``.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

_WORD: Final = re.compile(r"[a-z0-9]+")
_MAKERS: Final = frozenset({"nvidia", "amd", "tesla", "geforce", "gpu"})
_GIGABYTES: Final = re.compile(r"([0-9]+)gi?b")


def gpu_called(text: str, entries: Mapping[str, Any]) -> str | None:
    """The name of the GPU's entry that ``text`` means; None if it means none, or several."""
    words = _words(text) - _MAKERS
    meant = [name for name, entry in entries.items() if words and _calls(words, name, entry)]
    return meant[0] if len(meant) == 1 else None


def gpu_like(text: str, entries: Mapping[str, Any]) -> str | None:
    """The GPU's entry of which ``text`` has the most words; None if it names none."""
    words = _words(text)
    found = [
        (len(called), name)
        for name, entry in entries.items()
        for called in map(_words, entry.get("names", {}).get("called", ()))
        if called <= words
    ]
    return max(found)[1] if found else None


def llm_called(text: str, entries: Mapping[str, Any]) -> str | None:
    """The name of the model's entry that ``text`` means; None if it means none, or several."""
    folded = text.casefold()
    meant = {
        name
        for name, entry in entries.items()
        if folded.replace("-", "_") == name
        or any(folded in _forms(one) for one in entry.get("huggingface", ()))
    }
    return meant.pop() if len(meant) == 1 else None


def published_as(text: str, entries: Mapping[str, Any]) -> tuple[str, str] | None:
    """The model's entry and the precision of a well-known quantised publication; None if it is none."""
    folded = text.casefold()
    for name, entry in entries.items():
        for precision, hub_names in entry.get("quantised", {}).items():
            if any(folded in _forms(one) for one in hub_names):
                return name, precision
    return None


def is_hub_name(text: str) -> bool:
    """Whether a text has the form of a model's name on Hugging Face, ``organisation/model``."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", text, re.ASCII) is not None and not (
        text.endswith((".json", ".yaml"))
    )


def _forms(hub_name: str) -> tuple[str, str]:
    """The whole name and the part after the organisation, without capitals."""
    folded = hub_name.casefold()
    return folded, folded.rpartition("/")[2]


def _calls(words: frozenset[str], name: str, entry: Mapping[str, Any]) -> bool:
    if words == _words(name):
        return True
    names = entry.get("names", {})
    also = frozenset(names.get("with", ()))
    return any(called <= words and words - called <= also for called in map(_words, names.get("called", ())))


def _words(text: str) -> frozenset[str]:
    """The words of a name without capitals and punctuation; ``80GB`` is ``80g``."""
    return frozenset(_GIGABYTES.sub(r"\1g", word) for word in _WORD.findall(text.casefold()))
