"""``servetwin replay``: a run's journal fed to a fresh controller, every action compared."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import tell
from servetwin.run.replay_run import replay_run
from serving.vocabulary.errors import UserError


def replay(words: Sequence[str]) -> int:
    """Run without the first word; exit status 1 if an action differs or the journal breaks off."""
    words, as_json = asked_for_json(words)
    if not words:
        raise UserError("replay takes one folder: write servetwin replay DIR with the out= of a run")
    report = replay_run(Path(words[0]), words[1:])
    lines = [f"{report.actions} actions of {report.events} events compared, {report.different} differ"]
    if report.first_difference is not None:
        lines.append(f"first difference: {report.first_difference}")
    if report.cut is not None:
        lines.append(report.cut)
    tell(asdict(report), lines, as_json)
    return 1 if report.different or report.cut is not None else 0
