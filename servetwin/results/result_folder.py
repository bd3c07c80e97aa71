"""The folder of one run's results: complete under its name, or absent."""

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from servetwin.results.known_files import foreign, write_marker
from servetwin.results.unfinished import (
    clear,
    free_name,
    lock_folder,
    put_away,
    replaced_name,
    unfinished_name,
)
from serving.vocabulary.errors import PlaceError, UserError

# The folder's file system is at fault and not the run: another out= helps.
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})


class ResultFolder:
    """Collects files in a hidden sibling folder and renames it to ``path`` when the run is complete.

    Use it as a context manager: ``prepare()`` runs on entry, before anything expensive; leaving without
    ``commit()`` (an error, Ctrl-C) removes what was written. Raises UserError for an unusable ``path``.
    """

    def __init__(self, path: str | Path, overwrite: bool) -> None:
        self.target = _absolute(str(path))
        self.overwrite = overwrite
        self._temporary: Path | None = None
        self._lock: int | None = None  # of the temporary folder, while this process uses it
        self._new_parents: list[Path] = []

    @property
    def path(self) -> Path:
        """The folder to write files to before ``commit()``; RuntimeError outside of prepare and commit."""
        if self._temporary is None:
            raise RuntimeError("the result folder is not prepared, or already committed")
        return self._temporary

    def prepare(self) -> Path:
        """Clean up after crashed runs, check the target, and make the temporary folder, which is returned."""
        parent = self.target.parent
        clear(parent)
        self.check_target()
        try:
            self._new_parents = _missing(parent)
            parent.mkdir(parents=True, exist_ok=True)
            temporary = self._make_temporary()
            self.target.exists()  # its parents were missing, so a too long name fails only now
        except OSError as error:
            self.discard()
            nearest = next(place for place in (parent, *parent.parents) if os.path.lexists(place))
            why = f"takes no such folder: {error.strerror}" if nearest.is_dir() else "is no folder"
            raise PlaceError(
                f"out={self.target} cannot be made ({nearest} {why}): "
                "write out= with a folder in a place you may write to"
            ) from error
        return temporary

    def commit(self) -> Path:
        """Rename the finished folder to its final name and return it.

        If the name was taken during the run, the results are kept beside it and the UserError says where.
        """
        written = self.path
        write_marker(written, self.target.name)
        try:
            self.check_target()
            _replace(written, self.target)
        except (UserError, OSError) as error:
            free = free_name(self.target)
            written.rename(free)
            self._forget()
            raise UserError(f"{error}; this run's results were kept in {free}") from error
        self._forget()
        return self.target

    def discard(self) -> None:
        """Remove the temporary folder, if there is one, and the parent folders made for it."""
        if self._temporary is None:
            return
        try:
            shutil.rmtree(self._temporary, ignore_errors=True)
        finally:  # a second Ctrl-C may have interrupted the first attempt
            shutil.rmtree(self._temporary, ignore_errors=True)
            new_parents = self._new_parents
            self._forget()
            _remove_empty(new_parents)

    def __enter__(self) -> "ResultFolder":
        try:
            self.prepare()
        except BaseException:
            self.discard()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._temporary is None:
            return
        removed = not self._temporary.exists()
        self.discard()
        if isinstance(error, OSError) and (removed or error.errno in _NO_ROOM):
            reason = "it was removed during the run" if removed else os.strerror(error.errno or 0)
            remedy = (
                "leave it alone while a run goes on" if removed else "free space there or write another out="
            )
            raise UserError(
                f"the results could not be written to out={self.target} ({reason}): {remedy}"
            ) from error
        if error is not None and not isinstance(error, Exception):
            error.add_note("nothing was written")

    def _make_temporary(self) -> Path:
        """Make and lock the folder; retry if another run removes it as a crashed run's before the lock."""
        while True:
            temporary = unfinished_name(self.target.parent)
            self._temporary = temporary  # before it exists, so that Ctrl-C removes it
            temporary.mkdir()
            self._lock = lock_folder(temporary, wait=True)
            if temporary.exists():
                return temporary
            self._unlock()

    def _forget(self) -> None:
        """Forget the temporary folder, which has become a result or is removed."""
        self._temporary = None
        self._new_parents = []
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def check_target(self) -> None:
        """Check that the target is absent, empty, or (with overwrite) an unchanged earlier result."""
        target = self.target
        try:
            if not target.exists():
                return
            if not target.is_dir():
                raise PlaceError(f"out={target} is a file: write out= with the name of a folder")
            content = list(target.iterdir())
        except OSError as error:
            raise PlaceError(
                f"out={target} cannot be used ({error.strerror}): write out= with another folder"
            ) from error
        if target == Path.cwd() or target in Path.cwd().parents:
            raise PlaceError(f"out={target} is the folder you are in: write out= with a new folder")
        if content:
            self._check_earlier_result()

    def _check_earlier_result(self) -> None:
        target = self.target
        strangers = foreign(target)
        if strangers is None:
            raise PlaceError(
                f"out={target} holds files that are not a ServeTwin result: write out= with a new folder"
            )
        if not self.overwrite:
            raise PlaceError(
                f"out={target} already holds a result: write overwrite=true to replace it, or another out="
            )
        if strangers:
            raise PlaceError(
                f"out={target} holds {strangers[0]}, which is not part of its result or was changed since: "
                "move it away, or write another out="
            )


def _absolute(text: str) -> Path:
    """Resolve symbolic links, because a rename replaces a link and not its target."""
    try:
        path = Path(text).expanduser().resolve()
        if path.is_symlink():  # a link to itself: an error before Python 3.13
            raise OSError("it is a symbolic link to itself")
        return path
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).rstrip(".")
        raise PlaceError(
            f"out={text!r} is not a usable path ({reason}): write out= with another folder"
        ) from error


def _missing(folder: Path) -> list[Path]:
    """Return the missing ones of the folder and its parents, deepest first."""
    return [place for place in (folder, *folder.parents) if not os.path.lexists(place)]


def _remove_empty(folders: list[Path]) -> None:
    """Remove the folders, deepest first, up to the first that is not empty."""
    for folder in folders:
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return


def _replace(written: Path, target: Path) -> None:
    """Rename to a free name or an empty folder. An earlier result is renamed first and removed last."""
    if not target.exists() or not any(target.iterdir()):
        written.rename(target)
        return
    aside = replaced_name(target.parent)
    lock = lock_folder(target, wait=False)
    try:
        target.rename(aside)
        try:
            written.rename(target)
        except BaseException:
            aside.rename(target)
            raise
        with suppress(OSError):
            put_away(aside)
    finally:
        if lock is not None:
            os.close(lock)
