"""Adds the first mistake in a run's words to the error that its result folder cannot be used.

So the user can correct both before the next attempt.
"""

from collections.abc import Sequence

from hwmodels.errors import HardwareError
from serving.vocabulary.errors import PlaceError, UserError
from traces.errors import TraceError


def mistake_in(words: Sequence[str], alone: bool = False) -> str:
    """Return the first error in configuration, trace or hardware that ``words`` have with any result folder.

    Empty if there is none. ``alone``: whether a user wrote the words for this run only, so that each must be
    a word that the run reads.
    """
    from servetwin.config.compose.compose import load_config
    from servetwin.run.simulate import prepare

    words_without_folder = [word for word in words if word.partition("=")[0] not in ("out", "overwrite")]
    try:
        prepare(load_config([*words_without_folder, "out=none"], "simulate", alone))
    except (UserError, TraceError, HardwareError) as error:
        return str(error)
    return ""


def both(error: PlaceError, mistake: str) -> UserError:
    """Return one error with the mistake, if there is one, followed by the folder's error."""
    return UserError(f"{mistake}; and {error}") if mistake else error
