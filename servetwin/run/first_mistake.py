"""If the result folder cannot be used, report the run's other mistakes before that one."""

from collections.abc import Sequence

from hwmodels.errors import HardwareError
from serving.vocabulary.errors import PlaceError, UserError
from traces.errors import TraceError


def mistake_in(words: Sequence[str], alone: bool = False) -> str:
    """Return why ``words`` are refused with any result folder (configuration, trace, hardware), or "".

    ``alone``: as for ``load_config``.
    """
    from servetwin.config.compose.compose import load_config
    from servetwin.run.simulate import prepare

    elsewhere = [word for word in words if word.partition("=")[0] not in ("out", "overwrite")]
    try:
        prepare(load_config([*elsewhere, "out=none"], "simulate", alone))
    except (UserError, TraceError, HardwareError) as error:
        return str(error)
    return ""


def both(error: PlaceError, mistake: str) -> UserError:
    """Join the mistake and the folder's error, in this order."""
    return UserError(f"{mistake}; and {error}") if mistake else error
