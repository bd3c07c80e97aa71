"""docs/reference/POLICIES is what the protocols declare, and says what every field means."""

import re

import pytest

import nativecore
from scripts.policies_page import COMMON, KINDS, NAMED, PAGE, members, shown_classes, untold, with_policies
from servetwin.config.policy.groups import POLICY_GROUPS

# Compiled classes keep no annotations to read; make test compiles nothing before it.
pytestmark = pytest.mark.skipif(nativecore.section()["core"] == "compiled", reason="the core is compiled")


def test_the_page_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_policies(text) == text, "write python -m scripts.policies_page"


def test_every_group_of_policies_has_a_section() -> None:
    assert {kind.group for kind in KINDS} == set(POLICY_GROUPS)


@pytest.mark.parametrize("cls", shown_classes(), ids=lambda cls: cls.__name__)
def test_every_field_has_a_meaning(cls: type) -> None:
    """Its class's docstring, its own, or the common names say it."""
    assert untold(cls) == []


@pytest.mark.parametrize(
    "cls",
    [cls for cls in shown_classes(kind for kind in KINDS if not kind.rare) if cls not in NAMED],
    ids=lambda cls: cls.__name__,
)
def test_every_field_of_a_view_that_is_listed_stands_on_the_page(cls: type) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in members(cls) if not re.search(rf"\b{name}\b", text)] == []


def test_the_files_that_the_page_names_have_the_other_views() -> None:
    told = re.findall(r"((?:`\w+`(?:, )?)+) in `([\w/]+\.py)`", PAGE.read_text(encoding="utf-8"))
    files = {name: file for names, file in told for name in re.findall(r"\w+", names)}
    rare = [view for kind in KINDS if kind.rare for view in shown_classes([kind])]
    views = {view.__name__ for view in (*rare, *NAMED)}
    assert {"InstancesView", "PipelineView", "LiveView", "Provision"} <= set(files) <= views
    texts = {file: (PAGE.parents[2] / file).read_text(encoding="utf-8") for file in files.values()}
    assert [name for name, file in files.items() if f"class {name}" not in texts[file]] == []


def test_common_names_are_used() -> None:
    assert set(COMMON) <= {name for cls in shown_classes() for name in members(cls)}
