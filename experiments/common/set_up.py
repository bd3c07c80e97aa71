"""What a figure runs: a workload on a cluster and one system in it, in words of ``servetwin simulate``."""

from dataclasses import KW_ONLY, dataclass
from typing import Literal

Words = tuple[str, ...]


def last_words(words: Words) -> Words:
    """Return the words with one word per key: the key's last word, in the position of its first."""
    return tuple({word.partition("=")[0]: word for word in words}.values())


def value_of(words: Words, key: str, default: str | None = None) -> str:
    """The last value of this key; KeyError where there is neither a word nor a default."""
    values = dict(word.split("=", 1) for word in words)
    return values[key] if default is None else values.get(key, default)


@dataclass(frozen=True, slots=True)
class SetUp:
    """A workload on a cluster, the same for every system.

    words: cluster, model, engine. trace: the trace and its window. full: (prefill, decode) instances of the
    static full split, if there is one. capacity: what its C counts: ``least`` is the smaller of what it can
    prefill and what its KV memory lets it decode, ``prefill`` the first alone (many models always). prefill,
    decode: (least, most) instances of an elastic system, which also takes the words ``scaling``. rate: how
    C sets the rate: ``scaled`` copies arrivals, ``models`` gives many models a sum, ``written``: the trace
    has it; share: mean load over C, peak: most load of 5 s over what the most prefill instances can do
    (None: not a term of the rule). alone: the same GPUs with every instance on a host of its own. bursts_s:
    when bursts begin, where that is known. stand_in: what is not the paper's.
    """

    name: str
    words: Words
    trace: Words
    _: KW_ONLY
    full: tuple[int, int] = (0, 0)
    prefill: tuple[int, int] = (0, 0)
    decode: tuple[int, int] = (0, 0)
    scaling: Words = ()
    rate: Literal["scaled", "models", "written"] = "scaled"
    capacity: Literal["least", "prefill"] = "least"
    share: float | None = 0.5
    peak: float | None = 0.9
    alone: str = ""
    bursts_s: tuple[float, ...] = ()
    stand_in: str = ""

    def short(self) -> str:
        """The workload's name without model and cluster."""
        return self.name.partition("/")[0]

    def word(self, key: str, default: str | None = None) -> str:
        """The value of this key; KeyError where the set-up has no such word and there is no default."""
        return value_of((*self.words, *self.trace), key, default)


@dataclass(frozen=True, slots=True)
class Case:
    """One system in a set-up. label: its name in tables and plots. Its words go before the set-up's words.

    links: a cluster file (YAML) whose links the run has in place of its cluster's. once: run it under the
    first seed only, as for points of a sweep. optional: if its configuration is refused, report this in place
    of raising UserError. rows: a CSV of requests that the run reads as ``trace=file``. columns: the columns
    of its requests that the figure reads.
    """

    label: str
    set_up: SetUp
    words: Words
    _: KW_ONLY
    links: str = ""
    once: bool = False
    optional: bool = False
    rows: str = ""
    columns: Words = ()

    def all_words(self, *more: str) -> Words:
        """The set-up's, then these, then the case's; of a key that comes twice the last word."""
        return last_words((*self.set_up.words, *self.set_up.trace, *more, *self.words))
