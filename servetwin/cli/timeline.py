"""``servetwin timeline``: a run's journal for Perfetto."""

from collections.abc import Sequence
from pathlib import Path

from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import tell
from serving.vocabulary.errors import UserError


def timeline(words: Sequence[str]) -> int:
    """Write the timeline; exit status 0. UserError for a folder without a journal."""
    from servetwin.config.whole_file import check_free
    from servetwin.report.timeline import write_timeline

    words, as_json = asked_for_json(words)
    if not words:
        raise UserError("timeline takes one folder: write servetwin timeline DIR with the out= of a run")
    options = {"out": "timeline.json.gz", "overwrite": "false"}
    for word in words[1:]:
        key, _, text = word.partition("=")
        if key not in options or not text or (key == "overwrite" and text not in ("true", "false")):
            raise UserError(f"{word} is one word too many: write servetwin timeline DIR out=FILE")
        options[key] = text
    path = Path(options["out"]).expanduser()
    check_free("out", path, options["overwrite"] == "true")
    count = write_timeline(Path(words[0]), path)
    line = f"{count} slices in {path}: open it on https://ui.perfetto.dev"
    tell({"slices": count, "file": str(path)}, [line], as_json)
    return 0
