"""Asks a policy, and reports its faults.

Whatever a policy raises becomes a ``PolicyError``, also ``SystemExit``; only KeyboardInterrupt passes. A
policy's allowed answers are stated and checked beside its protocol. A ``try`` costs nothing if nothing is
raised.
"""

from dataclasses import dataclass
from reprlib import Repr
from types import FunctionType, TracebackType
from typing import Any, Final

from serving.vocabulary.errors import PolicyError
from serving.vocabulary.events import Arrived, Event
from serving.vocabulary.units import NS_PER_S

_LONGEST_TEXT: Final = 240
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _LONGEST_TEXT


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a policy: the method to call, and what it must return, worded to follow "it must return".

    ``is_attribute``: the name is an attribute, read and not called; the words then follow "it must be".
    """

    method: str
    must_return: str
    is_attribute: bool = False


def ask(policy: object, question: Question, *arguments: object) -> Any:
    """Call the policy and return its unchecked answer. Raises PolicyError for anything the policy raises."""
    try:
        return getattr(policy, question.method)(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise raised(policy, question, error) from error


def read(policy: object, question: Question) -> Any:
    """Return the policy's attribute of that name, unchecked. Raises PolicyError as ``ask`` does."""
    try:
        return getattr(policy, question.method)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise raised(policy, question, error) from error


def raised(policy: object, question: Question, error: BaseException) -> PolicyError:
    """Return the error to raise in place of one that escaped from the policy."""
    if isinstance(error, PolicyError):
        return error
    return fault(policy, question, f"raised {type(error).__name__}{_words(error)}{_place(error)}")


def refused(policy: object, question: Question, answer: object, why: str) -> PolicyError:
    """Return the error to raise for a wrong answer; ``why`` says what is wrong with it."""
    return fault(
        policy, question, f"{'is' if question.is_attribute else 'returned'} {shown(answer)}, but {why}"
    )


def fault(policy: object, question: Question, did: str) -> PolicyError:
    """Return the error to raise for what the policy did."""
    kind, verb = ("attribute", "be") if question.is_attribute else ("method", "return")
    return PolicyError(name_of(policy), f"{kind} {question.method}", did, f"{verb} {question.must_return}")


def wrong_reason(reason: object) -> str:
    """Say what is wrong with an invalid reason."""
    return (
        "the reason is empty"
        if type(reason) is str
        else f"the reason must be a str, not a {type(reason).__name__}"
    )


def name_of(policy: object) -> str:
    """Return ``module:Class``, as configurations write it; for a function, the function's name."""
    made_of = policy if isinstance(policy, FunctionType | type) else type(policy)
    return f"{made_of.__module__}:{made_of.__qualname__}"


def shown(answer: object) -> str:
    """Return a short text of any answer."""
    try:
        text = _SHORT.repr(answer)
    except Exception:
        text = f"a {type(answer).__name__} whose repr() fails"
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 4]} ..."


def event_text(now_ns: int, event: Event) -> str:
    """Return the event's kind, its subject and its time."""
    of = _of(event)
    time = f"{now_ns // NS_PER_S}.{now_ns % NS_PER_S:09d} s"
    return f"{type(event).__name__}{f' ({of})' if of else ''} at {time}"


def _of(event: Event) -> str:
    if type(event) is Arrived:
        return f"request {event.request.id}"
    for name in ("replica", "load", "transfer"):
        if hasattr(event, name):
            return f"{name} {getattr(event, name)}"
    return ""


def _words(error: BaseException) -> str:
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = ""
    return f": {text[:_LONGEST_TEXT]}" if text else ""


def _place(error: BaseException) -> str:
    """The line in the policy's own file; empty if the policy is not written in Python."""
    trace: TracebackType | None = error.__traceback__
    entry = trace.tb_next if trace is not None else None  # below the frame that called the policy
    if entry is None:
        return ""
    file, line = entry.tb_frame.f_code.co_filename, entry.tb_lineno
    while entry is not None:
        if entry.tb_frame.f_code.co_filename == file:
            line = entry.tb_lineno
        entry = entry.tb_next
    return f" ({file.replace(chr(92), '/').rpartition('/')[2]} line {line})"
