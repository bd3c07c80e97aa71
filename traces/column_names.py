"""Which column of somebody's file is which of ours: as the user says, by our own name, or by a common one.

Common names are compared without capitals, spaces and punctuation: ``Input Tokens`` is ``input_tokens``. The
unit at the end of a time's name (``timestamp_ms``, ``startTimeUnixNano``) is that of its values.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from traces.errors import TraceError

KEY: Final = "trace.columns"
ARRIVAL: Final = "arrival"
ARRIVALS: Final = {"arrival_ns": "ns", "arrival_us": "us", "arrival_ms": "ms", "arrival_s": "s"}
"""Column of arrivals -> its unit; that of ``ARRIVAL`` is told by the values (``traces.times``)."""
PROMPT: Final = "prompt_tokens"
OUTPUT: Final = "output_tokens"
NEEDED: Final = (ARRIVAL, PROMPT, OUTPUT)
OPTIONAL: Final = ("max_new_tokens", "model", "priority", "session", "images", "source_duration_ns")
OURS: Final = (ARRIVAL, *ARRIVALS, PROMPT, OUTPUT, *OPTIONAL)
PREFIX: Final = re.compile(r"prefix_([1-9][0-9]{0,8})", re.ASCII)
"""The column of prefix blocks, named for the tokens of a full one."""
MARK: Final = "="
"""Before one of ``NEEDED``: how a mark of ``traces.formats`` says that a file has it under a common name."""
UNUSUAL: Final = "!"
"""After it: under a name that ``vllm bench`` files do not have."""

# The names that loggers, gateways and published traces use, as ``_plain`` writes them.
_COMMON: Final = MappingProxyType({
    ARRIVAL: (
        "timestamp ts time datetime date arrival arrivaltime arrivaltimestamp arrivedat arrived arrivalat"
        " starttime startedat starttimestamp startts timestampstart start created createdat createdtime"
        " creationtime requesttime requesttimestamp requeststarttime requeststart requestedat receivedat"
        " receivedtime submittime submittedat sendtime sentat sentts eventtime logtime metadatarequeststart"
    ),
    PROMPT: (
        "prompttokens inputtokens contexttokens requesttokens prefilltokens numprompttokens numinputtokens"
        " numprefilltokens numcontexttokens nprompttokens ninputtokens promptlength inputlength promptlen"
        " inputlen promptsize inputsize inputtoks prompttoks tokensin tokensprompt prompttokencount"
        " inputtokencount numberinputtokens inputsequencelength isl genaiusageinputtokens"
        " genaiusageprompttokens"
        " usageprompttokens usageinputtokens metricsinputsequencelengthvalue"
    ),
    OUTPUT: (
        "outputtokens completiontokens generatedtokens responsetokens decodetokens generationtokens"
        " numoutputtokens numcompletiontokens numdecodetokens numgenerationtokens numgeneratedtokens"
        " ncompletiontokens noutputtokens ngeneratedtokens outputlength completionlength responselength"
        " generationlength outputlen completionlen responselen generationlen tokensize outputsize"
        " outputtoks tokensout tokenscompletion tokensgenerated outputtokencount completiontokencount"
        " candidatestokencount numberoutputtokens outputsequencelength osl genaiusageoutputtokens"
        " genaiusagecompletiontokens"
        " usagecompletiontokens usageoutputtokens metricsoutputsequencelengthvalue"
    ),
    "model": "model modelname modelid",
    "session": "session sessionid conversationid providedsessionid chatid",
})  # fmt: skip
_IN_SECONDS: Final = ("arrivedat", "arrivaltimestamp")
"""Of Vidur and of Splitwise: seconds from the trace's start, whole ones too."""
_UNITS: Final = {
    "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
    "ms": "ms", "msec": "ms", "millis": "ms", "milliseconds": "ms",
    "us": "us", "usec": "us", "micros": "us", "microseconds": "us",
    "ns": "ns", "nsec": "ns", "nano": "ns", "nanos": "ns", "nanoseconds": "ns",
}  # fmt: skip
_BENCH: Final = frozenset({
    "timestamp", "arrival_time", "prompt_len", "input_len", "prompt_tokens", "input_tokens", "output_tokens",
    "output_len",
})  # fmt: skip
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_NAME: Final = re.compile(r"@?[A-Za-z][A-Za-z0-9 _.-]*", re.ASCII)
_MOST_NAMES: Final = 12
_FILLERS: Final = ("unix", "epoch", "utc", "in")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """theirs: our column -> the file's. given: what the user mapped. common: ours under a common name.

    unit: of the arrivals if their name says one. ignored: the file's other columns.
    """

    theirs: Mapping[str, str]
    given: frozenset[str]
    common: frozenset[str]
    unit: str | None
    ignored: tuple[str, ...]

    @property
    def arrival(self) -> str | None:
        """Our name of the column of arrivals."""
        return _arrival(self.theirs)

    @property
    def foreign(self) -> bool:
        """Whether another program made the file: a needed column has another name than ours."""
        return any(ours in self.given or ours in self.common for ours in (ARRIVAL, *ARRIVALS, PROMPT, OUTPUT))

    @property
    def labels(self) -> tuple[str, ...]:
        """Which columns were taken by their common names, and which were not read."""
        taken = [f"{self.theirs[ours]!r} as {ours}" for ours in self.theirs if ours in self.common]
        found = (f"columns by their names: {', '.join(taken)}",) if taken else ()
        unread = (f"columns not read: {_some(self.ignored)}",) if self.ignored else ()
        return (*found, *unread)


def known_columns(fields: Iterable[str]) -> frozenset[str]:
    """The marks (``MARK``) of the needed columns that ``fields`` hold under their common names."""
    marks = set()
    for field in fields:
        ours, _ = common_name(field)
        if ours in NEEDED:
            marks.add(MARK + ours)
            if field not in _BENCH:
                marks.add(MARK + ours + UNUSUAL)
    return frozenset(marks)


def columns_of(header: Collection[str], given: str | None, file: Path) -> Columns:
    """The columns of a file with these names. given: ``trace.columns``.

    Raises TraceError for a name that ``given`` has and we or the file have not, and where two columns have
    common names for the same.
    """
    mapped = _mapping(given, header, file)
    theirs = dict(mapped)
    for name in header:
        if name not in mapped.values() and name not in theirs and (name in OURS or PREFIX.fullmatch(name)):
            theirs[name] = name
    objects = {name.rpartition(".")[0] for name in header if "." in name}
    common = _by_common_names([name for name in header if name not in objects], theirs, file)
    theirs.update(common)
    arrival = _arrival(theirs)
    unit = None
    if arrival is not None:
        unit = ARRIVALS.get(arrival) or common_name(theirs[arrival])[1] or _unit(theirs[arrival])
    return Columns(
        theirs=theirs,
        given=frozenset(mapped),
        common=frozenset(common),
        unit=unit,
        ignored=tuple(name for name in header if name not in theirs.values() and name not in objects),
    )


def _by_common_names(header: Collection[str], theirs: Mapping[str, str], file: Path) -> dict[str, str]:
    """Our columns that are not in ``theirs`` yet and that one column of the file has a common name for.

    Names inside objects count only where there is none outside. Raises TraceError where two needed ones do.
    """
    candidates: dict[str, list[str]] = {}
    for name in header:
        ours, _ = common_name(name)
        there = _arrival(theirs) is not None if ours == ARRIVAL else ours in theirs
        if ours is not None and not there and name not in theirs.values():
            candidates.setdefault(ours, []).append(name)
    found = {}
    for ours, names in candidates.items():
        least = min(name.count(".") for name in names)
        outermost = [name for name in names if name.count(".") == least]
        if len(outermost) == 1:
            found[ours] = outermost[0]
        elif ours in NEEDED:
            raise TraceError(
                f"{file}: {' and '.join(map(_shown, outermost))} may both be {ours}: say which with"
                f" {KEY}=[{ours}:{outermost[0]}] or the other"
            )
    return found


def _arrival(theirs: Mapping[str, str]) -> str | None:
    """Our name of the column of arrivals; None without one."""
    return next((ours for ours in (ARRIVAL, *ARRIVALS) if ours in theirs), None)


def listed(header: Iterable[str]) -> str:
    """A whole header as a sentence shows it, each name at most 40 printable characters."""
    return ", ".join(_shown(name) for name in header)


def needs(columns: Columns, header: Collection[str], file: Path, *, drawn: bool | None = None) -> None:
    """TraceError that names the needed columns a file lacks, the whole header, and how to name them.

    drawn: whether arrivals are drawn; None: they cannot be.
    """
    lacks = [ours for ours in (PROMPT, OUTPUT) if ours not in columns.theirs]
    if not drawn and columns.arrival is None:
        lacks.insert(0, ARRIVAL)
    if lacks:
        pairs = ",".join(f"{ours}:COLUMN" for ours in lacks)
        rate = ", or trace.rate_per_s= to draw arrivals" if drawn is not None and lacks == [ARRIVAL] else ""
        raise TraceError(
            f"{file} has no column for {' and '.join(lacks)} (its columns are {listed(header)}): write"
            f" {KEY}=[{pairs}] with the names of the file{rate}"
        )


def _mapping(given: str | None, header: Collection[str], file: Path) -> dict[str, str]:
    if given is None:
        return {}
    text = given.strip()
    text = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    mapped: dict[str, str] = {}
    for pair in (part.strip() for part in text.split(",")):
        ours, colon, theirs = (part.strip().strip("'\"") for part in pair.partition(":"))
        if not colon or not ours or not theirs:
            raise TraceError(
                f"{KEY}: {_shown(pair)} is no pair: write {KEY}=[{ARRIVAL}:THEIRS,{PROMPT}:THEIRS,"
                f"{OUTPUT}:THEIRS]"
            )
        if ours not in OURS and not PREFIX.fullmatch(ours):
            raise TraceError(
                f"{KEY}: {_shown(ours)} is no column of ours: write one of {', '.join(OURS)} or prefix_N"
                " before the colon"
            )
        if theirs not in header:
            raise TraceError(
                f"{KEY}: {file} has no column {_shown(theirs)}: write one of {listed(header)} after the colon"
            )
        if ours in mapped or theirs in mapped.values():
            raise TraceError(f"{KEY}: {_shown(pair)} names a column again: write each once")
        mapped[ours] = theirs
    arrivals = [ours for ours in (ARRIVAL, *ARRIVALS) if ours in mapped]
    if len(arrivals) > 1:
        raise TraceError(f"{KEY}: {' and '.join(arrivals)} are both arrivals: write one of them")
    return mapped


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return listed(names[:_MOST_NAMES]) + more


def _shown(name: str) -> str:
    return repr(name if len(name) <= 40 else name[:37] + "...")


def common_name(name: str) -> tuple[str | None, str | None]:
    """(our column that a common name stands for, unit if the name says one)."""
    if _NAME.fullmatch(name) is None:
        return None, None
    table = _table()
    words = [word.lower() for word in _WORDS.findall(name)]
    whole = "".join(words)
    if whole in table:
        return table[whole], "s" if whole in _IN_SECONDS else None
    if len(words) > 1 and words[-1] in _UNITS:
        stem = "".join(word for word in words[:-1] if word not in _FILLERS)
        if table.get(stem) == ARRIVAL:
            return ARRIVAL, _UNITS[words[-1]]
    ours, _ = common_name(name.rpartition(".")[2]) if "." in name else (None, None)
    return (ours, None) if ours in (PROMPT, OUTPUT) else (None, None)


def _unit(name: str) -> str | None:
    """The unit at the end of a name that the user has mapped to ``ARRIVAL``."""
    words = [word.lower() for word in _WORDS.findall(name)]
    return _UNITS.get(words[-1]) if len(words) > 1 else None


@cache
def _table() -> Mapping[str, str]:
    """Common name, plain -> our column."""
    return {name: ours for ours, names in _COMMON.items() for name in names.split()}
