"""What is missing on a machine is told with the words that install it."""

import sys

import pytest

from policies.live import zigzag_ilp
from servetwin.run import real_run
from serving.vocabulary.errors import UserError


def test_real_workers_without_torch_say_what_to_install_from_a_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match=r"write pip install 'servetwin\[real\]', or make test-real in a"):
        real_run.require_torch()


def test_a_solver_that_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zigzag_ilp, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'servetwin\[plan\]'"):
        zigzag_ilp.check_solver()
