"""The recorded traces that are known by name: file, format, publisher, licence, size and hash (sources.yaml).

Nothing of them lies in this repository: the files belong to their publishers. A source can be fetched when
its address, size and hash are pinned there; the others name the page where a person finds the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Final

import yaml

from traces.errors import TraceError


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One recorded trace.

    name: what the user calls it. file_name: what it is looked for as (or that with .gz). format: one of
    ``traces.formats.FORMATS``. url, bytes, sha256: where the file is and what it must be, None where nothing
    is pinned; hash_source: who says so. licence, citation: the publisher's terms and the paper to name. page:
    where a person reads about the file and finds it. note: what else to know before use, or empty.
    """

    name: str
    file_name: str
    format: str
    url: str | None = None
    bytes: int | None = None
    sha256: str | None = None
    hash_source: str | None = None
    licence: str
    citation: str
    page: str
    note: str = ""

    @property
    def pinned(self) -> bool:
        """Whether size and hash are known, so that a copy from anywhere can be judged."""
        return self.bytes is not None and self.sha256 is not None


def source_of(name: str) -> Source:
    """The source called ``name``; TraceError that lists the names when there is none."""
    if name in SOURCES:
        return SOURCES[name]
    near = get_close_matches(name, SOURCES, n=1)
    hint = f"{near[0]}, or another of " if near else "one of "
    raise TraceError(f"trace {name!r} is unknown: write {hint}{', '.join(SOURCES)}")


def terms(source: Source) -> str:
    """Licence, citation and origin as lines for a person; the last line has no newline."""
    lines = [
        f"{source.name}: {source.file_name}",
        f"licence: {source.licence}",
        f"cite: {source.citation}",
        f"page: {source.page}",
    ]
    if source.sha256 is not None:
        lines.append(f"sha256: {source.sha256} ({source.hash_source})")
    if source.note:
        lines.append(f"note: {source.note}")
    return "\n".join(lines)


def _sources() -> dict[str, Source]:
    text = Path(__file__).with_name("sources.yaml").read_text(encoding="utf-8")
    entries = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {name: Source(name=name, **entry) for name, entry in entries.items()}


SOURCES: Final[Mapping[str, Source]] = MappingProxyType(_sources())
"""name -> source, in the order in which they are listed."""
