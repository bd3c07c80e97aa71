"""A fact behaves as the frozen slotted dataclass it stands for."""

import pickle
from dataclasses import FrozenInstanceError, asdict, replace

import pytest

from serving.vocabulary.actions import Interrupt, Run
from serving.vocabulary.events import Arrived, Ran
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


def test_defaults_keywords_and_pickling() -> None:
    request = Request(id=3, arrival_ns=0, prompt_tokens=1, max_new_tokens=2, model="m")
    assert request.priority == 0
    assert Request(3, 0, 1, 2, "m", 7).priority == 7
    assert pickle.loads(pickle.dumps(Arrived(request))) == Arrived(request)
    assert asdict(RUN)["chunks"] == ((5, 0, 16),)
    with pytest.raises(TypeError):
        Request(1)  # type: ignore[call-arg]
