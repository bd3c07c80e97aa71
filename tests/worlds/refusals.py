"""What is refused: in one line that names what is wrong and what to do."""

from collections.abc import Callable

import pytest


def refuses(
    error: type[Exception], named: str, call: Callable[..., object], /, *given: object, **options: object
) -> str:
    """The call raises ``error`` in one line that matches ``named``, a pattern; returns the line."""
    with pytest.raises(error, match=named or None) as caught:
        call(*given, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence and len(sentence) < 1000
    return sentence
