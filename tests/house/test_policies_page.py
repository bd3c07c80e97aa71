"""docs/reference/POLICIES is what the protocols declare, and says what every field means."""

import re

import pytest

from scripts.policies_page import COMMON, KINDS, PAGE, members, shown_classes, untold, with_policies
from servetwin.config.policy.groups import POLICY_GROUPS


def test_the_page_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_policies(text) == text, "write python -m scripts.policies_page"


def test_every_group_of_policies_has_a_section() -> None:
    assert {kind.group for kind in KINDS} == set(POLICY_GROUPS)


@pytest.mark.parametrize("cls", shown_classes(), ids=lambda cls: cls.__name__)
def test_every_field_has_a_meaning(cls: type) -> None:
    """Its class's docstring, its own, or the common names say it, and the page has its name."""
    assert untold(cls) == []
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in members(cls) if not re.search(rf"\b{name}\b", text)] == []


def test_common_names_are_used() -> None:
    assert set(COMMON) <= {name for cls in shown_classes() for name in members(cls)}
