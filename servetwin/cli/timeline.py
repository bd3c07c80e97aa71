"""``servetwin timeline``: a run's journal for Perfetto."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import tell, telling
from serving.vocabulary.errors import UserError

USAGE: Final = """servetwin timeline: what every instance, load and transfer did when, for https://ui.perfetto.dev

  servetwin timeline DIR [out=FILE]    DIR: the out= of a run with journal=true; FILE: timeline.json.gz here

overwrite=true replaces FILE.

Open the file on that page (it stays on your machine) or in chrome://tracing. Tracks: instances with their
runs, loads, transfers, decisions with their reasons; of models in stages replicas, queue, use and arrivals of
each stage as counters.
"""


def timeline(words: Sequence[str]) -> int:
    """Write the timeline; exit status 0. UserError for a folder without a journal."""
    if not words or any(word in ("-h", "--help", "help") for word in words):
        with telling():
            print(USAGE, end="")
        return 0 if words else 2
    from servetwin.config.whole_file import check_free
    from servetwin.report.timeline import write_timeline

    words, as_json = asked_for_json(words)
    if not words:
        raise UserError("timeline takes one folder: write servetwin timeline DIR with the out= of a run")
    given = {"out": "timeline.json.gz", "overwrite": "false"}
    for word in words[1:]:
        key, _, text = word.partition("=")
        if key not in given or not text or (key == "overwrite" and text not in ("true", "false")):
            raise UserError(f"{word} is one word too many: write servetwin timeline DIR out=FILE")
        given[key] = text
    path = Path(given["out"]).expanduser()
    check_free("out", path, given["overwrite"] == "true")
    count = write_timeline(Path(words[0]), path)
    line = f"{count} slices in {path}: open it on https://ui.perfetto.dev"
    tell({"slices": count, "file": str(path)}, [line], as_json)
    return 0
