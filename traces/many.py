"""Requests of many models in one run: arrivals of each by itself, merged, with lengths of a trace."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import number_within, positive_number, short_number
from traces.columns import Names
from traces.errors import TraceError
from traces.streams import stream
from traces.synthetic.arrivals import LONGEST_S, operational_times
from traces.synthetic.drawn import count_of, recipe
from traces.synthetic.many_models import zipf_shares
from traces.synthetic.rate_profile import Floats, RateProfile, constant
from traces.workload import MAX_ROWS, NS_PER_S, Workload

_MOST_BURSTS: Final = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """How one model's arrivals come: Gamma gaps with ``gap_cv`` along a rate with sudden rises.

    Each rise is that of ``burstgpt_like``: straight to ``factor`` times the base within ``ramp_s``, held for
    ``hold_s``, straight back within ``decay_s``; between two there is a quiet time of exponential length with
    mean ``quiet_s``. ``factor`` 1 has no rises. Raises TraceError on values out of range.
    """

    gap_cv: float
    factor: float
    ramp_s: float
    hold_s: float
    decay_s: float
    quiet_s: float

    def __post_init__(self) -> None:
        number_within("gap_cv", self.gap_cv, 1e-3, 1e3)
        number_within("factor", self.factor, 1, 1e6)
        for key in ("ramp_s", "hold_s", "decay_s", "quiet_s"):
            positive_number(key, getattr(self, key))

    @property
    def burst_s(self) -> float:
        """Seconds from a rise's start to its end."""
        return self.ramp_s + self.hold_s + self.decay_s

    @property
    def mean_to_base(self) -> float:
        """The long-run mean rate over the base rate."""
        slopes_s = (self.ramp_s + self.decay_s) / 2
        extra_s = (self.factor - 1.0) * (slopes_s + self.hold_s)
        return 1.0 + extra_s / (self.quiet_s + self.burst_s)

    def __str__(self) -> str:
        gaps = f"Gamma gaps of CV {short_number(self.gap_cv)}"
        if self.factor == 1.0:
            return gaps
        return f"{gaps}, {short_number(self.factor)}-fold bursts {short_number(self.quiet_s)} s apart"


def many_models(
    lengths: Workload,
    names: Sequence[str],
    *,
    rate_per_s: float,
    exponent: float,
    bursts: Bursts,
    seed: int,
    requests: int | None = None,
    duration_s: float | None = None,
) -> Workload:
    """The merged requests of ``names``, each an independent process; ``lengths`` lends lengths.

    Together they make ``rate_per_s``; the first name is the most popular, by Zipf's law with ``exponent``.
    A request takes prompt, output, cap and images together from a random row of ``lengths``. Streams are the
    models' own, named by position: one more model takes its share of the rate and changes nothing else of the
    others. The trace ends after ``requests`` or before ``duration_s``, whichever comes first; at least one is
    needed. Raises TraceError.
    """
    rates_per_s = positive_number("rate_per_s", rate_per_s) * zipf_shares(len(names), exponent)
    arrival_ns, codes = merged_arrivals(seed, rates_per_s, bursts, requests, duration_s)
    ends = {"requests": requests, "duration_s": duration_s}
    ends_given = {key: value for key, value in ends.items() if value is not None}
    ends_given |= {"models": len(names), "zipf": exponent, "rate_per_s": rate_per_s, **asdict(bursts)}
    row = np.empty(len(codes), dtype=np.int64)
    by_model = np.argsort(codes, kind="stable")
    start = 0
    for model, end in enumerate(np.cumsum(np.bincount(codes, minlength=len(names))).tolist()):
        drawn = stream(seed, f"many/{model}/lengths").integers(len(lengths), size=end - start)
        row[by_model[start:end]] = drawn
        start = end
    label = (
        f"arrivals drawn: {len(names)} models, Zipf {short_number(exponent)}, {rate_per_s:.6g} per second in"
        f" all, each its own {bursts}; lengths of random rows"
    )
    caps, images = lengths.max_new_tokens, lengths.images
    return Workload(
        arrival_ns=arrival_ns,
        prompt_tokens=lengths.prompt_tokens[row],
        output_tokens=lengths.output_tokens[row],
        max_new_tokens=None if caps is None else caps[row],
        images=None if images is None else images[row],
        model=Names(codes, tuple(names)),
        name=lengths.name,
        source=f"{recipe('many_models', seed, ends_given)}; lengths of random rows of: {lengths.source}",
        labels=(*lengths.labels, label),
        rows_read=lengths.rows_read,
    )


def with_hosted(workload: Workload, names: Sequence[str]) -> Workload:
    """The same requests, the trace's own models handed out to ``names`` in turns, most requests first.

    With more models in the trace than names, several of them share one. Raises TraceError without models.
    """
    if workload.model is None:
        raise TraceError(f"trace={workload.name} has no models in its rows: write models=zipf to draw them")
    ranked = list(workload.model.counts())
    code = {word: rank % len(names) for rank, word in enumerate(ranked)}
    of_word = np.array([code.get(word, 0) for word in workload.model.words], dtype=np.int32)
    label = f"the {len(ranked)} models of the trace are served by {len(names)}, in turns by popularity"
    return workload.labelled(label, model=Names(of_word[workload.model.codes], tuple(names)))


def merged_arrivals(
    seed: int,
    rates_per_s: Floats,
    bursts: Bursts,
    requests: int | None = None,
    duration_s: float | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """(arrivals in ns from the run's start, whose each is) of independent processes; at one instant by model.

    More ``requests`` or a longer ``duration_s`` only add arrivals at the end. Raises TraceError.
    """
    rates = _checked(rates_per_s)
    limit = None if requests is None else count_of(requests)
    most_s = math.inf if duration_s is None else positive_number("duration_s", duration_s)
    last_s = most_s
    if limit is not None:
        last_s = min(most_s, (limit + 6.0 * math.sqrt(limit)) / float(rates.sum()))
    elif duration_s is None:
        raise TraceError("neither requests nor duration_s is given: write one of them")
    while True:
        _check_size(last_s, rates, bursts)
        arrivals = [model_arrivals_ns(seed, model, rate, bursts, last_s) for model, rate in enumerate(rates)]
        if limit is None or last_s >= most_s or sum(map(len, arrivals)) >= limit:
            break
        last_s = min(most_s, 1.5 * last_s)
    codes = np.repeat(np.arange(len(arrivals), dtype=np.int32), [len(own) for own in arrivals])
    arrival_ns = np.concatenate(arrivals)
    order = np.argsort(arrival_ns, kind="stable")[:limit]
    if len(order) == 0:
        raise TraceError(f"duration_s={duration_s!r} ends before the first arrival: write a longer one")
    return arrival_ns[order], codes[order]


def model_arrivals_ns(
    seed: int, model: int, rate_per_s: float, bursts: Bursts, end_s: float
) -> NDArray[np.int64]:
    """One model's arrivals before ``end_s``; with a later end these come first.

    It starts as if it had run for ever, so that ``rate_per_s`` is the mean from the first second on: in the
    middle of a rise with the share of time that rises take.
    """
    if rate_per_s <= 0:
        return np.zeros(0, dtype=np.int64)
    base_per_s = rate_per_s / bursts.mean_to_base
    if bursts.factor == 1.0:
        profile, since_s = constant(base_per_s), 0.0
    else:
        profile, since_s = _profile(stream(seed, f"many/{model}/bursts"), base_per_s, bursts, end_s)
    before, until = profile.expected(np.array([since_s, since_s + end_s])).tolist()
    times = _operational(seed, model, bursts.gap_cv, until - before)
    arrival_ns = np.rint((profile.times_s(times + before) - since_s) * NS_PER_S).astype(np.int64)
    arrival_ns = np.maximum.accumulate(np.maximum(arrival_ns, 0))  # rounding may cross a piece's edge
    return arrival_ns[: int(np.searchsorted(arrival_ns, round(end_s * NS_PER_S), side="left"))]


def _operational(seed: int, model: int, gap_cv: float, end: float) -> Floats:
    """Arrivals at rate 1, up to ``end`` and beyond; drawn again from the start when too few."""
    draws = int(end + 6.0 * max(1.0, gap_cv) * math.sqrt(end)) + 2
    while True:
        times = operational_times(stream(seed, f"many/{model}/gaps"), draws, gap_cv)
        if times[-1] >= end:
            return times
        draws *= 2


def _profile(
    generator: np.random.Generator, base_per_s: float, bursts: Bursts, end_s: float
) -> tuple[RateProfile, float]:
    """(rates over time, where in them the run starts). A later ``end_s`` only adds to the end."""
    place_s = generator.random() * (bursts.quiet_s + bursts.burst_s)
    since_s = max(place_s - bursts.quiet_s, 0.0)
    blocks: list[Floats] = []
    covered_s = 0.0
    while covered_s <= since_s + end_s:
        quiet_s = generator.standard_exponential(64) * bursts.quiet_s
        spans = np.tile([0.0, bursts.ramp_s, bursts.hold_s, bursts.decay_s], (len(quiet_s), 1))
        spans[:, 0] = quiet_s
        if since_s > 0 and not blocks:
            spans[0, 0] = 0.0  # the run starts within the first rise
        blocks.append(spans.reshape(-1))
        covered_s += float(spans.sum())
    edges_s = np.cumsum(np.concatenate(([0.0], *blocks)))
    top_per_s = base_per_s * bursts.factor
    rises = len(blocks) * 64
    start = np.tile([base_per_s, base_per_s, top_per_s, top_per_s], rises)
    end = np.tile([base_per_s, top_per_s, top_per_s, base_per_s], rises)
    lasts = np.diff(edges_s) > 0
    return RateProfile(np.concatenate(([0.0], edges_s[1:][lasts])), start[lasts], end[lasts]), since_s


def _checked(rates_per_s: Floats) -> Floats:
    rates = np.asarray(rates_per_s, np.float64)
    if rates.ndim != 1 or len(rates) == 0 or not np.isfinite(rates).all() or rates.min() < 0:
        raise TraceError("rates_per_s needs one finite rate of at least 0 per model")
    if rates.sum() <= 0:
        raise TraceError("the models have no arrivals: write a rate above 0")
    return rates


def _check_size(last_s: float, rates: Floats, bursts: Bursts) -> None:
    """Refuse what is a slip of the keyboard before it fills the memory."""
    expected = last_s * float(rates.sum())
    if expected > MAX_ROWS:
        raise TraceError(
            f"{expected:.3g} requests of {len(rates)} models are more than {MAX_ROWS}: write a shorter"
            " duration_s or a lower rate"
        )
    if last_s > LONGEST_S:
        raise TraceError(
            f"rates of {float(rates.sum()):.3g} per second in all spread the requests over more than 31"
            " years: write a higher rate"
        )
    rises = len(rates) * last_s / (bursts.quiet_s + bursts.burst_s)
    if bursts.factor > 1.0 and rises > _MOST_BURSTS:
        raise TraceError(
            f"{rises:.3g} bursts of {len(rates)} models are more than {_MOST_BURSTS}: write a longer quiet_s"
            " or fewer requests"
        )
