"""Which actions are carried out on stock engines behind HTTP, by what was found of the servers."""

from typing import Final

from serving.vocabulary.actions import (
    Assign,
    Detach,
    Fail,
    Interrupt,
    JoinBatch,
    Migrate,
    Preempt,
    Reject,
    Run,
    Send,
    Wake,
)

SENDS: Final[frozenset[type]] = frozenset((Assign, Reject, Fail, Wake))
# Abort here, resume elsewhere with prompt and tokens so far.
MOVES: Final[frozenset[type]] = frozenset((Preempt, Migrate))
# KV goes from a server that prefills to one that decodes, by their own connector; ending a request there is
# closing its connection.
HANDS_OVER: Final[frozenset[type]] = frozenset((Send, Preempt))
CARRIES_OUT: Final = SENDS | MOVES | HANDS_OVER
# What an engine decides by itself: a simulated one is told it, under the same mask (driver.carries_out=http).
BY_ITSELF: Final[frozenset[type]] = frozenset((Run, Interrupt, Preempt, Detach, JoinBatch))


def carries_out(resumes: bool, hands_over: bool = False) -> frozenset[type]:
    """``resumes``: every server gives token ids back, takes them as a prompt, and aborts.

    ``hands_over``: those that prefill were seen to give KV to those that decode.
    """
    return SENDS | (MOVES if resumes else frozenset()) | (HANDS_OVER if hands_over else frozenset())
