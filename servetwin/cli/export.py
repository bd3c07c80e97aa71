"""``servetwin export``: a run's requests in the format of another tool."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import tell
from serving.vocabulary.errors import UserError

FORMS: Final = ("aiperf", "aiperf_records", "inference_perf", "vllm_bench")
_KEYS: Final = ("to", "out", "overwrite")


def export(words: Sequence[str]) -> int:
    """Exit status 0. UserError for a folder without a run and a file that cannot be written."""
    from servetwin.compare.own_result import read_result
    from servetwin.config.whole_file import write_whole
    from servetwin.export.exported_run import exported_run

    words, as_json = asked_for_json(words)
    folder, *rest = words or [""]
    options = _options(rest)
    if not folder or options.get("to") not in FORMS or "out" not in options:
        raise UserError(f"write servetwin export DIR to={'|'.join(FORMS)} out=FILE")
    path = Path(options["out"]).expanduser()
    if path.exists() and options.get("overwrite") != "true":
        raise UserError(f"out={path} is there: write overwrite=true to replace it, or another out=")
    run = exported_run(read_result(Path(folder).expanduser()))
    write_whole("out", path, _writer(options["to"])(run))
    answer = {"requests": run.count, "to": options["to"], "file": str(path)}
    tell(answer, [f"{run.count} requests in {path}"], as_json)
    return 0


def _writer(form: str) -> Callable[..., str]:
    """Return the function of one of ``FORMS``."""
    from servetwin.export import aiperf, inference_perf, vllm_bench

    writers = (aiperf.statistics, aiperf.records, inference_perf.summary, vllm_bench.report)
    return dict(zip(FORMS, writers, strict=True))[form]


def _options(words: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for word in words:
        key, _, text = word.partition("=")
        if key not in _KEYS or not text or key in options:
            raise UserError(f"{word} is one word too many: write servetwin export DIR to=aiperf out=FILE")
        options[key] = text
    return options
