"""A fact behaves as the frozen slotted dataclass it stands for."""

import pickle
from dataclasses import FrozenInstanceError, asdict, fields, replace

import pytest

from serving.vocabulary.actions import Interrupt, Run
from serving.vocabulary.events import Arrived, Ran
from serving.vocabulary.fact import fact
from serving.vocabulary.request import Request

RUN = Run(1, 0, ((5, 0, 16),), True, 1, False, "chunked")


def test_fields_cannot_be_set_or_added() -> None:
    with pytest.raises(FrozenInstanceError):
        RUN.replica = 2  # type: ignore[misc]
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        RUN.other = 2  # type: ignore[attr-defined]
    assert not hasattr(RUN, "__dict__")


def test_equality_is_by_type_and_value() -> None:
    assert replace(RUN) == RUN and hash(RUN) == hash(replace(RUN))
    assert replace(RUN, max_steps=2) != RUN
    assert Interrupt(1, "x") != Ran(1, 0, 0, ())


def test_methods_that_are_compiled_late_are_those_of_the_dataclass() -> None:
    """Of classes of one, two and no field: the same text, and the same order in sets."""

    @fact
    class Late:
        one: int
        two: str = "x"

    @fact
    class Single:
        one: int

    @fact
    class Empty:
        pass

    assert repr(Late(1)).endswith("Late(one=1, two='x')")
    assert Late(1) == Late(1) and Late(1) != Late(2) and Late(1) != 1
    assert (hash(Late(1)), hash(Single(4)), hash(Empty())) == (hash((1, "x")), hash((4,)), hash(()))
    assert Empty() == Empty() and Single(1) != Late(1) and Single(1) == Single(1)
    assert [field.name for field in fields(Late)] == list(Late.__match_args__) == ["one", "two"]  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        del Late(1).one
    with pytest.raises(TypeError):
        Late()  # type: ignore[call-arg]


def test_defaults_keywords_and_pickling() -> None:
    request = Request(id=3, arrival_ns=0, prompt_tokens=1, max_new_tokens=2, model="m")
    assert request.priority == 0
    assert Request(3, 0, 1, 2, "m", 7).priority == 7
    assert pickle.loads(pickle.dumps(Arrived(request))) == Arrived(request)
    assert asdict(RUN)["chunks"] == ((5, 0, 16),)
    with pytest.raises(TypeError):
        Request(1)  # type: ignore[call-arg]
