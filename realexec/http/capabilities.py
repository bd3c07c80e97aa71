"""Which actions are carried out on stock engines behind HTTP, by what was found of the servers."""

from typing import Final

from serving.vocabulary.actions import (
    AllocateGpus,
    Assign,
    Detach,
    Fail,
    Interrupt,
    JoinBatch,
    Load,
    Migrate,
    Preempt,
    Reject,
    ReleaseGpus,
    Run,
    Send,
    StopLoad,
    Wake,
)

SENDS: Final[frozenset[type]] = frozenset((Assign, Reject, Fail, Wake))
# Abort here, resume elsewhere with prompt and tokens so far.
MOVES: Final[frozenset[type]] = frozenset((Preempt, Migrate))
# KV goes from a server that prefills to one that decodes, by their own connector; ending a request there is
# closing its connection.
HANDS_OVER: Final[frozenset[type]] = frozenset((Send, Preempt))
# An instance that goes sleeps, and wakes when it comes again.
SLEEPS: Final[frozenset[type]] = frozenset((AllocateGpus, Load, StopLoad, ReleaseGpus))
CARRIES_OUT: Final = SENDS | MOVES | HANDS_OVER | SLEEPS
# What an engine decides by itself: a simulated one is told it, under the same mask (driver.carries_out=http).
BY_ITSELF: Final[frozenset[type]] = frozenset((Run, Interrupt, Preempt, Detach, JoinBatch))


def carries_out(resumes: bool, hands_over: bool = False, sleeps: bool = False) -> frozenset[type]:
    """``resumes``: every server gives token ids back, takes them as a prompt, and aborts.

    ``hands_over``: those that prefill were seen to give KV to those that decode. ``sleeps``: all
    were seen to sleep and to wake.
    """
    found = SENDS | (MOVES if resumes else frozenset()) | (HANDS_OVER if hands_over else frozenset())
    return found | (SLEEPS if sleeps else frozenset())
