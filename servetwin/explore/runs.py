"""Runs of the page's states: one at a time, in a process of its own that a newer state ends."""

from __future__ import annotations

import shutil
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Lock
from typing import Final

LONGEST_S: Final = 60.0
# So many result folders are kept for links to their reports; older ones are deleted.
MOST_KEPT: Final = 24
_WARM: Final = ("servetwin.config.compose.compose", "servetwin.run.simulate", "servetwin.report.report")


@dataclass(frozen=True, slots=True)
class Ended:
    """``how`` a run ended: ``done``, ``refused`` with a sentence, ``replaced`` by a newer one, ``failed``."""

    how: str
    text: str = ""


class Runs:
    """Simulates a state at a time into ``folder``/NUMBER; thread-safe.

    Processes are forked from one that has imported what a run needs, so that a run starts at once.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload(list(_WARM))
        self._lock = Lock()
        self._current: BaseProcess | None = None
        self._newest = 0
        self._kept: OrderedDict[int, Path] = OrderedDict()

    def folder_of(self, number: int) -> Path | None:
        """Return the result folder of a run; None once it was deleted."""
        return self._kept.get(number)

    def simulate(self, words: Sequence[str]) -> tuple[int, Ended]:
        """Run ``servetwin simulate`` with these words and end the run before; its number and end."""
        mine, theirs = self._context.Pipe(duplex=False)
        with self._lock:
            self.stop()
            self._newest += 1
            number, path = self._newest, self._folder / str(self._newest)
            process = self._context.Process(target=_simulate, args=(list(words), path, theirs), daemon=True)
            process.start()
            self._current = process
        theirs.close()
        ended = self._end_of(process, mine, number)
        if ended.how == "done":
            self._keep(number, path)
        return number, ended

    def stop(self) -> None:
        """End the run that goes on, if any."""
        if self._current is not None and self._current.is_alive():
            self._current.terminate()
        self._current = None

    def _end_of(self, process: BaseProcess, told: Connection, number: int) -> Ended:
        try:
            if not told.poll(LONGEST_S):
                process.terminate()
                return Ended("refused", f"The run took longer than {LONGEST_S:g} s: ask for fewer requests.")
            return Ended(*told.recv())
        except EOFError:  # it ended without a word
            replaced = number != self._newest
            return Ended("replaced") if replaced else Ended("failed", "The run ended without a result.")
        finally:
            told.close()
            process.join()

    def _keep(self, number: int, path: Path) -> None:
        with self._lock:
            self._kept[number] = path
            while len(self._kept) > MOST_KEPT:
                _, oldest = self._kept.popitem(last=False)
                shutil.rmtree(oldest, ignore_errors=True)


def _simulate(words: list[str], path: Path, tell: Connection) -> None:
    """Run in a process of its own: results into ``path``, then one message."""
    from hwmodels.errors import HardwareError
    from servetwin.config.compose.compose import load_config
    from servetwin.results.result_folder import ResultFolder
    from servetwin.run.simulate import simulate
    from serving.vocabulary.errors import PolicyError, UserError
    from traces.errors import TraceError

    try:
        config = load_config([*words, f"out={path}"], "simulate", alone=True)
        with ResultFolder(config.out, config.overwrite) as folder:
            simulate(config, folder.path)
            folder.commit()
    except (UserError, PolicyError, HardwareError, TraceError) as error:
        tell.send(("refused", str(error)))
    except Exception as error:
        tell.send(("failed", f"{type(error).__name__}: {error}"))
    else:
        tell.send(("done", ""))
