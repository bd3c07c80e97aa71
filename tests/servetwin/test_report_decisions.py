"""The list of decisions on a page: what is left out of a long journal, and that it is said."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from servetwin.report import decisions as listed
from serving.record.journal import header_text, line
from serving.vocabulary.actions import Action, Assign, Reject, Run
from serving.vocabulary.events import Woke


def journal(path: Path, answers: Iterable[list[Action]]) -> Path:
    lines = [header_text({"format": 1}), *(line(now, Woke(), one) for now, one in enumerate(answers))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def rows(page: str, kind: str) -> int:
    return page.count(f'<tr data-kind="{kind}">')


def test_a_short_journal_is_listed_whole_without_its_steps(tmp_path: Path) -> None:
    step = Run(0, 0, (), True, 1, False, "step")
    page = listed.decisions(
        journal(tmp_path / "journal", [[Assign(0, 1, "least"), step], [Reject(1, "full")]])
    )
    assert (rows(page, "Assign"), rows(page, "Reject"), rows(page, "Run")) == (1, 1, 0)
    assert "2 decisions of the journal." in page and "The journal is long" not in page


def test_many_of_a_kind_leave_room_for_the_rare_ones(tmp_path: Path) -> None:
    many = listed._MOST_OF_A_KIND + 5
    answers = [[Assign(number, 0, "turn")] for number in range(many)] + [[Reject(9, "full")]]
    page = listed.decisions(journal(tmp_path / "journal", answers))
    assert (rows(page, "Assign"), rows(page, "Reject")) == (listed._MOST_OF_A_KIND, 1)
    assert f"the first {listed._MOST_OF_A_KIND} decisions of each kind" in page


@pytest.mark.parametrize("cut", ["rows", "lines"])
def test_a_page_has_no_more_rows_than_its_limit(
    tmp_path: Path, cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit all is there; one more is left out, and said."""
    most = 20
    name = "MOST_ROWS" if cut == "rows" else "MOST_LINES"
    monkeypatch.setattr(listed, name, most)
    whole = most if cut == "rows" else most - 1  # the header is a line
    for count, is_long in ((whole, False), (whole + 1, True)):
        page = listed.decisions(journal(tmp_path / "journal", [[Reject(0, "full")] for _ in range(count)]))
        assert rows(page, "Reject") == whole
        assert ("The journal is long" in page) == is_long


def test_without_a_journal_or_a_decision_there_is_no_section(tmp_path: Path) -> None:
    assert listed.decisions(None) == listed.decisions(tmp_path / "none") == ""
    assert listed.decisions(journal(tmp_path / "journal", [[]])) == ""
