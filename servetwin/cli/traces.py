"""``servetwin traces``: list, fetch, describe, convert and sample workloads."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import help_of, tell, telling
from servetwin.cli.subcommands import by_verb
from servetwin.config.overrides import Wanted, echo
from servetwin.run.progress import progress_bar
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from servetwin.cli.trace_words import TraceWords
    from traces.workload import Workload


_SUFFIXES: Final = {".csv": "csv", ".parquet": "parquet", ".jsonl": "mooncake"}
_OUT_KEYS: Final = {
    "out": Wanted(str),
    "to": Wanted(str),
    "overwrite": Wanted(bool),
    "exact": Wanted(bool),
}
_SHOW_KEYS: Final = {"plot": Wanted(str), "json": Wanted(str), "overwrite": Wanted(bool)}


def traces(words: Sequence[str]) -> int:
    """Run without the first word; exit status 2 without a verb."""
    verbs: Mapping[str, Callable[[Sequence[str]], int]] = {
        "list": _list,
        "fetch": _fetch,
        "describe": _describe,
        "convert": _convert,
        "sample": _sample,
    }
    return by_verb("traces", words, verbs, help_of("traces"))


def _list(words: Sequence[str]) -> int:
    from servetwin.cli.trace_list import known_traces, print_list

    words, as_json = asked_for_json(words)
    if words:
        raise UserError(f"servetwin traces list takes no words: leave '{echo(words[0])}' out")
    with telling():
        if as_json:
            print(json.dumps(known_traces(), indent=1))
        else:
            print_list()
    return 0


def _fetch(words: Sequence[str]) -> int:
    from servetwin.config.overrides import parse_words
    from traces.fetching.fetch import fetch
    from traces.fetching.sources import source_of, terms
    from traces.synthetic.registry import SYNTHETIC

    words, as_json = asked_for_json(words)
    if not words or "=" in words[0]:
        raise UserError("servetwin traces fetch lacks a name: write one of servetwin traces list")
    folder = "data"
    for word in parse_words(words[1:]):
        if word.key != "folder":
            raise UserError(f"unknown key '{echo(word.key)}' for servetwin traces fetch: write folder=FOLDER")
        folder = word.text
    if words[0] in SYNTHETIC:
        raise UserError(f"{words[0]} is drawn, so there is nothing to fetch: write trace={words[0]} in a run")
    source = source_of(words[0])
    made = [path for path in (Path(folder), *Path(folder).parents) if not path.exists()]
    try:
        with progress_bar(f"fetching {source.name}") as on_progress:
            path = fetch(source, Path(folder), on_progress=on_progress)
    except BaseException:
        for empty in made:  # innermost first; a folder with a part of the file stays
            if empty.is_dir() and not any(empty.iterdir()):
                empty.rmdir()
        raise
    size = path.stat().st_size
    answer = {"file": str(path), "bytes": size, "licence": source.licence, "citation": source.citation}
    lines = (f"{path}: {size:,} bytes, sha256 as pinned", terms(source))
    tell(answer, lines, as_json, f"; the file is in {path}")
    return 0


def _describe(words: Sequence[str]) -> int:
    from servetwin.cli.trace_text import print_description
    from servetwin.cli.trace_words import trace_words
    from traces.description import describe
    from traces.replacing import replacing

    words, as_json = asked_for_json(words)
    parsed = trace_words("describe", words, _SHOW_KEYS, changes=True)
    targets = [_free(parsed, key) for key in ("plot", "json") if key in parsed.other]
    workload = _changed_workload(parsed)
    description = describe(workload)
    text = json.dumps(description.as_dict(), indent=1, sort_keys=True, allow_nan=False)
    if "json" in parsed.other:
        with replacing(Path(parsed.other["json"]), True) as half:  # checked for overwriting before
            half.write_text(text + "\n", encoding="utf-8")
    if "plot" in parsed.other:
        from servetwin.report.trace_plot import plot

        plot(workload, description, Path(parsed.other["plot"]))
    with telling():
        if as_json:
            print(text)
            return 0
        print_description(description)
        for target in targets:
            print(f"written: {target}")
    return 0


def _convert(words: Sequence[str]) -> int:
    from servetwin.cli.trace_words import trace_words

    words, as_json = asked_for_json(words)
    parsed = trace_words("convert", words, _OUT_KEYS, changes=False)
    write, target = _writer(parsed, "convert")
    answer, lines = _written(parsed, write, _changed_workload(parsed), target)
    tell(answer, lines, as_json, f"; the requests are in {target}")
    return 0


def _sample(words: Sequence[str]) -> int:
    from servetwin.assemble.workload import finished, selected
    from servetwin.cli.trace_text import print_comparison, print_description
    from servetwin.cli.trace_words import trace_words
    from traces.counts import arrival_counts, count_statistics, expected_under_thinning
    from traces.description import describe

    words, as_json = asked_for_json(words)
    parsed = trace_words("sample", words, _OUT_KEYS, changes=True)
    write, target = _writer(parsed, "sample")
    source = selected(parsed.trace, parsed.seed)
    sample = finished(parsed.trace, parsed.seed, source)
    answer, lines = _written(parsed, write, sample, target)
    counts, scale = arrival_counts(source), parsed.trace.rate_scale
    same_axis = parsed.trace.time_compression == 1 and parsed.trace.limit is None
    after = arrival_counts(sample, bins_of=source if same_axis else None)
    expected = {} if scale is None or scale >= 1 else expected_under_thinning(counts, scale, parsed.seed)
    described, before, left = describe(sample), count_statistics(counts), count_statistics(after)
    if as_json:
        bursts = {"source": asdict(before), "sample": asdict(left)}
        bursts["expected"] = {name: asdict(statistics) for name, statistics in expected.items()}
        tell({**answer, "description": described.as_dict(), "bursts": bursts}, (), as_json)
        return 0
    tell(answer, lines, as_json, f"; the requests are in {target}")
    with telling():
        print_description(described)
        print_comparison(before, left, expected, scale)
    return 0


def _changed_workload(parsed: "TraceWords") -> "Workload":
    from servetwin.assemble.workload import finished, selected

    return finished(parsed.trace, parsed.seed, selected(parsed.trace, parsed.seed))


def _writer(parsed: "TraceWords", verb: str) -> tuple[Callable[..., tuple[str, ...]], Path]:
    """Return the writing function and its target, both checked before a long read."""
    from traces.formats import writer_named

    if "out" not in parsed.other:
        raise UserError(f"servetwin traces {verb} lacks out: write out=FILE.csv, .parquet or .jsonl")
    target = _free(parsed, "out")
    name = parsed.other.get("to") or _SUFFIXES.get(target.suffix)
    if name is None:
        raise UserError(f"out={target} does not tell the format: write to=csv, to=parquet or to=mooncake")
    if parsed.other.get("exact") and name != "mooncake":
        raise UserError(f"exact=true is for to=mooncake, and {name} is exact anyway: leave it out")
    return writer_named(name), target


def _written(
    parsed: "TraceWords", write: Callable[..., tuple[str, ...]], workload: "Workload", target: Path
) -> tuple[dict[str, Any], list[str]]:
    """Write the file; return its description as data for programs and as readable lines."""
    options: dict[str, Any] = {"overwrite": parsed.other.get("overwrite", False)}
    if parsed.other.get("exact"):
        options["exact"] = True
    lost = write(workload, target, **options)
    labels = [*(lost or ()), *_not_in_the_file(workload, target, parsed.other.get("to"))]
    answer = {"requests": len(workload), "file": str(target), "remarks": labels}
    return answer, [f"{len(workload):,} requests in {target}", *(f"  {label}" for label in labels)]


def _not_in_the_file(workload: "Workload", target: Path, to: str | None) -> list[str]:
    """Return what the file's requests do not contain; Parquet stores it beside them."""
    lines = [f"left out when it was read: {rows:,} rows, {why}" for why, rows in workload.dropped.items()]
    if (to or _SUFFIXES.get(target.suffix)) != "parquet":
        lines += [f"not kept in the file: {label}" for label in workload.labels]
    return lines


def _free(options: "TraceWords", key: str) -> Path:
    """Return the path of ``key``, which must not exist unless it may be replaced."""
    path = Path(options.other[key]).expanduser()
    if path.exists() and not options.other.get("overwrite"):
        raise UserError(f"{key}={path} exists: write another name, or overwrite=true to replace it")
    if not path.parent.is_dir():
        raise UserError(f"{key}={path} is in a folder that does not exist: make {path.parent} first")
    return path
