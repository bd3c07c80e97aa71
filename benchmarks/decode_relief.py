"""The most that sharing decode steps with a loading instance could give, where instances do both.

python -m benchmarks.decode_relief             five seeds of three set-ups, a minute of CPU time
python -m benchmarks.decode_relief seeds=3

Live pairs share the layers of prompts (docs/explanation/LIVE_SCALING.md). In these runs the instances that
serve also
have less decode work while live instances load, as if decode steps were shared at no cost, in two ways:

layers    A live instance with k of L layers adds k/(L-k) of an instance while k <= L/2, then a whole one:
          the throughput of a pair in BlitzScale (OSDI 2025, section 5.2).
complete  A live instance adds a whole one from the moment at which its load begins.

With N instances that serve, a decode step takes N/(N + what is added) of its time. Prompts, loads and the
load monitor stay as shipped. No KV is moved, and no instance reads parameters for its share of a batch, so a
real way to share decode steps gives less.

Every line: as shipped; for both ways the number and its ratio to shipped, with the 95 % interval over the
seeds. Reads the traces of SERVETWIN_TRACES.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from benchmarks.command import command, count
from experiments.blitzscale.more_set_ups import burst_7b, colocated
from experiments.blitzscale.set_ups import AZURE_CODE_8B, AZURE_CONV_7B, BLITZ
from experiments.common.paired import mean_of, ratio_of
from experiments.common.rates import NOWHERE, rate_of
from servetwin.config.compose.compose import load_config
from servetwin.report.number_text import number
from servetwin.run import simulate
from serving.controller import Controller
from serving.live.pairs import LivePair
from serving.services.colocated.service import Colocated
from serving.vocabulary.actions import Chunk
from serving.vocabulary.errors import UserError
from simcore.replica.step_times import Pieces, StepTimes

SEEDS: Final = 5
MEASURES: Final = {
    "TTFT mean": ("ttft_ms", "mean"),
    "TTFT P99": ("ttft_ms", "p99"),
    "TBT mean": ("itl_ms", "mean"),
    "TBT P99": ("itl_ms", "p99"),
    "TBT of a request, mean": ("tpot_ms", "mean"),
    "TBT of a request, P99": ("tpot_ms", "p99"),
}
Summary = Mapping[str, Any]

# What a loading instance adds to those that serve, in instances.

Added = Callable[[LivePair], Fraction]


def by_layers(pair: LivePair) -> Fraction:
    """Return what the layers add that its passes may use now."""
    loaded, missing = pair.loaded, pair.layers - pair.loaded
    return Fraction(loaded, missing) if loaded < missing else Fraction(1)


def as_complete(pair: LivePair) -> Fraction:
    """Return 1."""
    return Fraction(1)


WAYS: Final[Mapping[str, Added]] = {"layers": by_layers, "complete": as_complete}


@dataclass(frozen=True, slots=True)
class Relief:
    """What part of its decode steps an instance of this model runs itself."""

    service: Colocated
    added: Added

    def share(self) -> Fraction:
        """Of a step that begins now: serving instances over those and what is added; 1 if none loads live."""
        loading = [
            pair for pair in self.service.live.pairs.values() if not (pair.fully_loaded or pair.stopped)
        ]
        serving = len(self.service.partners())
        if not loading or not serving:
            return Fraction(1)
        return serving / (serving + sum(map(self.added, loading), Fraction()))


class RelievedSteps:
    """``StepTimes`` of an instance that runs a share of its decode steps; prompts take their whole time."""

    def __init__(self, rows: StepTimes, share: Callable[[], Fraction]) -> None:
        self._rows, self._share = rows, share

    def decode(self, n: int) -> Pieces:
        """Every linear piece times the share."""
        rows, share = self._rows.decode(n), self._share()
        if share == 1:
            return rows
        return tuple([(limit, int(cost * share), int(slope * share)) for limit, cost, slope in rows])

    def mixed(self, n: int, context: int, chunks: Sequence[Chunk], spread: int = 0) -> int:
        """The chunks alone, and the share of what ``n`` decoding sequences add to them."""
        cost, share = self._rows.mixed(n, context, chunks, spread), self._share()
        if share == 1 or not n:
            return cost
        alone = self._rows.mixed(0, 0, chunks)
        return alone + int((cost - alone) * share)

    @property
    def skewed(self) -> bool:
        """As in the whole steps."""
        return self._rows.skewed

    @property
    def output_token(self) -> int:
        """As in the whole steps."""
        return self._rows.output_token

    def shift(self, n: int, spread: int) -> int:
        """As in the whole steps: these are tokens."""
        return self._rows.shift(n, spread)


@contextmanager
def relieved(added: Added) -> Iterator[list[Relief]]:
    """Relieve the decode steps of every simulation made within; the list gets the relief of each."""
    whole, made = simulate.Simulation, list[Relief]()

    def make(
        *,
        controller: Controller,
        rows: Sequence[StepTimes],
        rows_of: Mapping[str, StepTimes],
        **others: Any,
    ) -> Any:
        (service,) = controller.services.values()
        assert isinstance(service, Colocated), "decode steps are relieved where instances do both"
        made.append(relief := Relief(service, added))
        return whole(
            controller=controller,
            rows=[RelievedSteps(own, relief.share) for own in rows],
            rows_of={model: RelievedSteps(own, relief.share) for model, own in rows_of.items()},
            **others,
        )

    simulate.Simulation = make  # type: ignore[assignment,misc]
    try:
        yield made
    finally:
        simulate.Simulation = whole  # type: ignore[misc]


def run(words: Sequence[str]) -> Summary:
    """Run these words step by step, for a step takes the share of the moment at which it begins."""
    config = load_config((*words, "engine.exact=true", NOWHERE), "simulate")
    return simulate.execute(simulate.prepare(config)).summary


def lines_of(shipped: Sequence[Summary], ways: Mapping[str, Sequence[Summary]]) -> Iterator[str]:
    """One line per measure; each sequence has a summary per seed."""
    yield f"{'ms':24s} {'shipped':>8s}" + "".join([f"   {way:>8s} {'over shipped':20s}" for way in ways])
    for name, (key, statistic) in MEASURES.items():
        before = [summary[key][statistic] for summary in shipped]
        line = f"{name:24s} {number(mean_of(before).value):>8s}"
        for summaries in ways.values():
            after = [summary[key][statistic] for summary in summaries]
            ratio = ratio_of(after, before)
            line += f"   {number(mean_of(after).value):>8s} {ratio.shown() if ratio else '':20s}"
        yield line.rstrip()


def _seeds(words: Sequence[str]) -> int:
    seeds = SEEDS
    for word in words:
        key, _, value = word.partition("=")
        if key != "seeds":
            raise UserError(f"there is no word {word!r}: write seeds={SEEDS}")
        seeds = count(value, "number of seeds", f"seeds={SEEDS}")
    return seeds


def main(words: list[str]) -> None:
    """Print a table for each set-up."""
    seeds = _seeds(words)
    for set_up in (burst_7b(), AZURE_CONV_7B, AZURE_CODE_8B):
        case = colocated(set_up, BLITZ)
        runs = [case.all_words(*rate_of(set_up, seed).words, f"seed={seed}") for seed in range(seeds)]
        shipped, ways = [run(own) for own in runs], dict[str, list[Summary]]()
        for way, added in WAYS.items():
            with relieved(added):
                ways[way] = [run(own) for own in runs]
        print(f"{set_up.name}, instances do both, seeds 0 to {seeds - 1}")
        print("\n".join([f"  {line}" for line in lines_of(shipped, ways)]))


if __name__ == "__main__":
    command("benchmarks.decode_relief", __doc__, main)
