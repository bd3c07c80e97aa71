"""What a dispatcher may decide in a system with separate prefill and decode instances.

There prompts wait in one queue for an idle prefill instance, and ``Dispatcher.dispatch`` is not asked. A
dispatcher with ``convert`` may let a decode instance compute an arriving prompt. One with ``decode_place``
chooses where computed prompts decode, and may give instances the other role.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from serving.protocols.policy_faults import Question, ask, refused, wrong_reason
from serving.vocabulary.request import Request


class SplitView(Protocol):
    """The instances of one model that take requests, in a split system.

    ``prefill``, ``decode``: instances, ascending. ``turning``: prefill instances that decode once they have
    computed the prompts they have begun. ``backlog_tokens``: prompt tokens that the prefill instances still
    have to compute, in the queue and at instances.
    """

    @property
    def model(self) -> str: ...

    @property
    def prefill(self) -> Sequence[int]: ...

    @property
    def decode(self) -> Sequence[int]: ...

    @property
    def turning(self) -> Sequence[int]: ...

    @property
    def backlog_tokens(self) -> int: ...

    def prompt_tokens(self, replica: int) -> int:
        """Prompt tokens that an instance itself still has to compute."""

    def decoding(self, replica: int) -> tuple[int, int]:
        """(requests, their prompt tokens) that decode at a decode instance or are on their way to it."""

    def receives(self, replica: int) -> bool:
        """Whether KV is on its way to a decode instance: it takes no other until that has arrived."""

    def has_room(self, replica: int, request: Request) -> bool:
        """Whether a decode instance has memory and a seat for the whole request."""


class SupportsConvert(Protocol):
    """Of a split system: decode instances may compute prompts."""

    def chunk_tokens(self, model: str) -> int:
        """Tokens of a step of such a decode instance, its decoding requests included."""

    def convert(self, request: Request, view: SplitView) -> tuple[int, str] | None:
        """Asked when a prompt arrives: the decode instance that computes and decodes it; None: a prefill
        instance.
        """


class SupportsDecodePlaces(Protocol):
    """Of a split system: where prompts decode, and which instances change their role."""

    def decode_place(self, requests: Sequence[Request], view: SplitView) -> tuple[int, str] | None:
        """Asked when prompts of one prefill instance are computed: where they decode; None: they wait.

        A decode instance takes as many of them as fit. A prefill instance becomes a decode instance first. If
        they wait, it is asked again when KV has arrived somewhere or a request has finished.
        """

    def prefills_again(self, replica: int, view: SplitView) -> str | None:
        """Asked about a decode instance without requests: why it becomes a prefill instance; None: not."""


CONVERT: Final = Question(
    "convert",
    "None, or a tuple (replica, reason): a decode instance of the view with room for the request, and a str "
    "that is not empty",
)
PLACE: Final = Question(
    "decode_place",
    "None, or a tuple (replica, reason): a decode instance of the view that receives nothing or a prefill "
    "instance, and a str that is not empty",
)
AGAIN: Final = Question("prefills_again", "None, or a reason, a str that is not empty")
CHUNK: Final = Question("chunk_tokens", "a number of tokens, an int of 1 or more")


def chunk_tokens(policy: Any, model: str) -> int:
    """The policy's checked answer. Raises PolicyError."""
    answer = ask(policy, CHUNK, model)
    if type(answer) is not int or answer < 1:
        raise refused(policy, CHUNK, answer, "the answer is not such a number")
    return answer


def converted(policy: Any, request: Request, view: SplitView) -> tuple[int, str] | None:
    """The policy's checked answer. Raises PolicyError."""
    answer = ask(policy, CONVERT, request, view)
    if answer is None:
        return None
    if type(answer) is not tuple or len(answer) != 2 or type(answer[0]) is not int:
        raise refused(policy, CONVERT, answer, "the answer is not a pair of an instance and a reason")
    replica, reason = answer
    if replica not in view.decode or not view.has_room(replica, request):
        raise refused(policy, CONVERT, answer, f"instance {replica} is no decode instance with room")
    if type(reason) is not str or not reason:
        raise refused(policy, CONVERT, answer, wrong_reason(reason))
    return replica, reason


def decode_place(policy: Any, requests: Sequence[Request], view: SplitView) -> tuple[int, str] | None:
    """The policy's checked answer. Raises PolicyError."""
    answer = ask(policy, PLACE, requests, view)
    if answer is None:
        return None
    if type(answer) is not tuple or len(answer) != 2 or type(answer[0]) is not int:
        raise refused(policy, PLACE, answer, "the answer is not a pair of an instance and a reason")
    replica, reason = answer
    if replica not in view.prefill and (replica not in view.decode or view.receives(replica)):
        raise refused(policy, PLACE, answer, f"instance {replica} can take nothing now")
    if type(reason) is not str or not reason:
        raise refused(policy, PLACE, answer, wrong_reason(reason))
    return replica, reason


def prefills_again(policy: Any, replica: int, view: SplitView) -> str | None:
    """The policy's checked answer. Raises PolicyError."""
    answer = ask(policy, AGAIN, replica, view)
    if answer is None or (type(answer) is str and answer):
        return answer
    raise refused(policy, AGAIN, answer, wrong_reason(answer))
