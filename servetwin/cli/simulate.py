"""``servetwin simulate``: one run, its summary, and where its results are."""

import re
from collections.abc import Sequence
from typing import Final

from servetwin.cli.flags import asked_for_json, asked_for_ranges
from servetwin.cli.process import tell, telling
from servetwin.config.compose.compose import load_config
from servetwin.report.table import print_summary
from servetwin.results.result_folder import ResultFolder
from servetwin.run.first_mistake import both, mistake_in
from servetwin.run.progress import progress_bar
from servetwin.run.simulate import simulate as simulated
from serving.vocabulary.errors import PlaceError

_PLAIN: Final = re.compile(
    r"[\w./-]+"
)  # no quotes, escapes or the user's home: what is written is the folder


def simulate(words: Sequence[str]) -> int:
    """Run without the first word; exit status 0."""
    words, as_json = asked_for_json(words)
    words, ranges = asked_for_ranges(words)
    try:
        _check_place(words)
        config = load_config(words, "simulate", alone=True)
        with ResultFolder(config.out, config.overwrite) as folder:
            with progress_bar("simulating") as on_progress:
                summary = simulated(config, folder.path, on_progress)
            target = folder.commit()
    except PlaceError as error:
        raise both(error, mistake_in(words, alone=True)) from error
    where = f"; the results are in {target}"
    if not as_json:
        with telling(where):
            print_summary(summary, ranges=ranges)
    tell(summary, [f"results in {target} (open report.html)"], as_json, where)
    return 0


def _check_place(words: Sequence[str]) -> None:
    """Refuse a taken ``out=`` before anything is composed; a word in another form is checked after that."""
    named = dict(word.partition("=")[::2] for word in words)
    out, overwrite = named.get("out", ""), named.get("overwrite", "false")
    if _PLAIN.fullmatch(out) and overwrite in ("true", "false"):
        ResultFolder(out, overwrite == "true").check_target()
