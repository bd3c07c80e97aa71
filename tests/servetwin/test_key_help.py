"""simulate --help KEY for groups of options, and for parameters of policies and traces."""

import pytest

from servetwin.config.compose.key_text import key_help
from servetwin.config.options import option_groups
from serving.vocabulary.errors import UserError


def test_a_group_of_options_lists_them() -> None:
    for group, options in option_groups().items():
        if group.startswith("system/"):
            assert key_help(group, "simulate") == f"{group}=OPTION\n  one of {', '.join(options)}\n"


def test_a_parameter_of_policies_has_its_default_by_option() -> None:
    assert key_help("system.stages.utilization", "simulate").splitlines()[1:] == [
        "  cocktail: 0.8",
        "  inferline: 0.7",
        "  infless: 0.8",
    ]


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("trace.gap_cv", "docs/reference/TRACES.md"),
        ("system.stages.nope", "unknown key"),
        ("nope.nope", "unknown key"),
    ],
)
def test_other_words_are_refused(word: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        key_help(word, "simulate")
