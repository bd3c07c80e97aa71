"""Fetching a trace from its publisher: whole and with the pinned hash, or not at all."""

import os
from collections.abc import Callable
from pathlib import Path

from traces.errors import TraceError
from traces.fetching.download import Download, Progress, download
from traces.fetching.http import Answer
from traces.fetching.http import open_url as open_web_url
from traces.fetching.part import SUFFIX, locked_part, publish, said
from traces.fetching.sources import Source, terms
from traces.reading import file_digest

__all__ = ["Progress", "fetch", "terms"]


def fetch(
    source: Source,
    folder: str | os.PathLike[str],
    *,
    url: str | None = None,
    on_progress: Progress | None = None,
    open_url: Callable[[str, int], Answer] = open_web_url,
) -> Path:
    """The file of ``source`` in ``folder``, downloaded unless it is there.

    url: another address of the same bytes. What arrives is kept in FILE.part: a fetch that was cut or stopped
    goes on there. The name without .part is given only to a file of the pinned size and hash; an existing
    file is never written to. Raises TraceError in one sentence when the
    source has no pinned size and hash (then a person puts the file there, and nothing vouches for it), and
    on everything else that can go wrong.
    """
    place = Path(folder)
    final = place / source.file_name
    address = _address(source, final, url)
    if _is_there(source, final):
        return final
    with said(place):
        place.mkdir(parents=True, exist_ok=True)
    path = place / (source.file_name + SUFFIX)
    with locked_part(path) as part:
        if not _is_there(source, final):  # another fetch may have ended while this one came to the lock
            assert source.bytes is not None and source.sha256 is not None
            download(
                Download(
                    url=address,
                    size_bytes=source.bytes,
                    sha256=source.sha256,
                    hash_source=source.hash_source or "pinned here",
                    path=path,
                    part=part,
                    on_progress=on_progress or _silent,
                    open_url=open_url,
                )
            )
            publish(part, path, final)
    return final


def _silent(bytes_done: int, bytes_total: int) -> None:
    pass


def _is_there(source: Source, final: Path) -> bool:
    """Whether the right file lies there; TraceError when another one does."""
    with said(final):
        if not os.path.lexists(final):
            return False
        if not final.is_file():
            raise TraceError(f"{final} is not a file: move it away, then fetch {source.name} again")
        found_bytes = final.stat().st_size
    if source.bytes is not None and found_bytes != source.bytes:
        raise _other(source, final, f"has {found_bytes} bytes instead of {source.bytes}")
    if source.sha256 is not None:
        found = file_digest(final)
        if found != source.sha256:
            raise _other(source, final, f"has sha256 {found} instead of {source.sha256}")
    return True


def _other(source: Source, final: Path, difference: str) -> TraceError:
    return TraceError(f"{final} {difference}: move it away or rename it, then fetch {source.name} again")


def _address(source: Source, final: Path, url: str | None) -> str:
    """Where to fetch from; TraceError that says what a person can do when that or the hash is not known."""
    address = url if url is not None else source.url
    if address is not None and source.pinned:
        return address
    lacks = "no url is known" if source.pinned else "no size and hash are known to check it"
    if os.path.lexists(final) and not source.pinned:
        raise TraceError(f"{final} is there already, but {lacks}: use it as it is")
    raise TraceError(
        f"{source.file_name} cannot be fetched, as {lacks}: find it at {source.page} and put it into"
        f" {final.parent} as {source.file_name}" + (f" ({source.note})" if source.note else "")
    )
