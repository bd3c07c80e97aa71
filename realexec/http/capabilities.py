"""Which actions are carried out on stock engines behind HTTP, by what was found of the servers."""

from typing import Final

from serving.vocabulary.actions import (
    Assign,
    Detach,
    Fail,
    Interrupt,
    Migrate,
    Preempt,
    Reject,
    Run,
    Wake,
)

SENDS: Final[frozenset[type]] = frozenset((Assign, Reject, Fail, Wake))
# Abort here, resume elsewhere with prompt and tokens so far.
MOVES: Final[frozenset[type]] = frozenset((Preempt, Migrate))
CARRIES_OUT: Final = SENDS | MOVES
# What an engine decides by itself: a simulated one is told it, under the same mask (driver.carries_out=http).
BY_ITSELF: Final[frozenset[type]] = frozenset((Run, Interrupt, Preempt, Detach))


def carries_out(resumes: bool) -> frozenset[type]:
    """``resumes``: every server gives token ids back, takes them as a prompt, and aborts."""
    return CARRIES_OUT if resumes else SENDS
