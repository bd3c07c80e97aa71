"""docs/reference/JOURNAL lists the records of the vocabulary, under the names that a journal has."""

import json
from pathlib import Path

from scripts.journal_page import KINDS, PAGE, record_name, with_records
from servetwin.cli import main as cli

RUN = ("trace=azure_conv_like", "trace.requests=12", "cluster=a100_x2", "uncertainty=off", "journal=true")


def test_the_tables_are_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_records(text) == text, "write python -m scripts.journal_page"


def test_a_journal_has_the_records_and_the_lines_of_the_page(tmp_path: Path) -> None:
    assert cli.run(["simulate", *RUN, f"out={tmp_path / 'run'}"]) == 0
    lines = (tmp_path / "run" / "journal").read_text(encoding="utf-8").splitlines()
    assert "\n".join(lines[1:3]) in PAGE.read_text(encoding="utf-8")
    entries = [json.loads(line) for line in lines[1:-1]]
    assert {event[0] for _, event, *_ in entries} <= {record_name(cls) for cls in KINDS["events"]}
    assert {action[0] for entry in entries for action in entry[2]} <= {
        record_name(cls) for cls in KINDS["actions"]
    }
