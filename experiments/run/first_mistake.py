"""A folder that cannot be used hides no other mistake: what else is wrong with a run is told before it."""

from collections.abc import Sequence

from hwmodels.errors import HardwareError
from serving.vocabulary.errors import PlaceError, UserError
from traces.errors import TraceError


def mistake_in(words: Sequence[str]) -> str:
    """Why ``words`` are refused wherever results go: configuration, trace, hardware; "" where they run."""
    from experiments.compose.compose import load_config
    from experiments.run.simulate import prepare

    elsewhere = [word for word in words if word.partition("=")[0] not in ("out", "overwrite")]
    try:
        prepare(load_config([*elsewhere, "out=none"], "simulate"))
    except (UserError, TraceError, HardwareError) as error:
        return str(error)
    return ""


def both(error: PlaceError, mistake: str) -> UserError:
    """The mistake, then the folder's."""
    return UserError(f"{mistake}; and {error}") if mistake else error
