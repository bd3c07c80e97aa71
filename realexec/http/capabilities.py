"""Which actions the driver carries out on stock engines behind HTTP, by what the probes found."""

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
# Abort at one server, resume at another with the prompt and the tokens so far.
MOVES: Final[frozenset[type]] = frozenset((Preempt, Migrate))
# KV goes from a server that prefills to one that decodes, by the engines' own connector. `Preempt` there
# closes the request's connection.
HANDS_OVER: Final[frozenset[type]] = frozenset((Send, Preempt))
# A released instance sleeps, and wakes when it is loaded again.
SLEEPS: Final[frozenset[type]] = frozenset((AllocateGpus, Load, StopLoad, ReleaseGpus))
CARRIES_OUT: Final = SENDS | MOVES | HANDS_OVER | SLEEPS
# A stock engine decides these itself; a simulated one is sent them under this mask (driver.carries_out=http).
BY_ITSELF: Final[frozenset[type]] = frozenset((Run, Interrupt, Preempt, Detach, JoinBatch))


def carries_out(resumes: bool, hands_over: bool = False, sleeps: bool = False) -> frozenset[type]:
    """``resumes``: every server returns token ids, takes them as a prompt, and aborts.

    ``hands_over``: servers that prefill were seen to give KV to servers that decode. ``sleeps``: all
    servers were seen to sleep and to wake.
    """
    kinds = SENDS | (MOVES if resumes else frozenset()) | (HANDS_OVER if hands_over else frozenset())
    return kinds | (SLEEPS if sleeps else frozenset())
