"""Which experts the tokens of a step choose: expected numbers under a declared popularity of the experts.

Routing per step is not recorded anywhere, so it is assumed: tokens choose independently of each other, each
``per_token`` different experts. Uniform popularity is what training aims at (a loss or a bias balances the
load of experts: Switch Transformers, section 2.2; DeepSeek-V3 report, section 2.1.2). A skewed one is an
option, with the r-th expert chosen in proportion to r ** -skew.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from hwmodels.profiles.profile import Floats


@dataclass(frozen=True, slots=True)
class Routing:
    """A token chooses ``per_token`` of ``count`` experts; ``skew`` 0: all experts alike."""

    count: int
    per_token: int
    skew: float = 0.0

    def shares(self) -> Floats:
        """The share of tokens that choose each expert; they add up to ``per_token``."""
        if self.per_token == self.count:
            return np.ones(self.count)
        if self.skew == 0.0:
            return np.full(self.count, self.per_token / self.count)
        return _skewed(self.count, self.per_token, self.skew)

    def activated(self, tokens: Floats) -> Floats:
        """Expected number of different experts that ``tokens`` tokens choose.

        Uniform: count * (1 - (1 - per_token / count) ** tokens).
        """
        missed: Floats = (1.0 - self.shares())[:, None] ** np.asarray(tokens, dtype=np.float64)
        found: Floats = self.count - missed.sum(axis=0)
        return found

    def slowest_load(self, tokens: Floats, ranks: int) -> Floats:
        """Expected work of the busiest of ``ranks``, in multiples of the mean; experts are placed at random.

        Each rank has count / ranks experts. Their load varies with the tokens (hypergeometric, a token takes
        each expert once) and with which experts they are; the sums are taken as normal.
        """
        if ranks == 1:
            return np.ones(len(tokens))
        held = self.count / ranks
        apart = (1.0 - 1.0 / ranks) * held
        placed = apart * float(np.var(self.shares())) * self.count / (self.count - 1)
        chosen = self.per_token * apart / self.count * (self.count - self.per_token) / (self.count - 1)
        mean = np.asarray(tokens, dtype=np.float64) * self.per_token / ranks
        spread = np.sqrt(tokens * chosen + np.square(tokens) * placed)
        most = np.asarray(tokens, dtype=np.float64) * min(self.per_token, held)
        return np.minimum(mean + _largest_of(ranks) * spread, most) / mean

    def slowest_activated(self, tokens: Floats, ranks: int) -> Floats:
        """Expected number of activated experts on the rank that has most of them."""
        whole = self.activated(tokens)
        if ranks == 1:
            return whole
        share = 1.0 / ranks
        variance = whole * share * (1.0 - share) * (self.count - whole) / (self.count - 1)
        most = np.minimum(self.count / ranks, whole)
        return np.minimum(whole / ranks + _largest_of(ranks) * np.sqrt(variance), most)


@cache
def _skewed(count: int, per_token: int, skew: float) -> Floats:
    """Choosing without repetition flattens popularity: 1 - exp(-rate * weight), adding up to per_token."""
    weights = np.arange(1, count + 1, dtype=np.float64) ** -skew
    low, high = 0.0, 1.0
    while (1.0 - np.exp(-high * weights)).sum() < per_token:
        high *= 2.0
    for _ in range(100):
        rate = (low + high) / 2.0
        low, high = (rate, high) if (1.0 - np.exp(-rate * weights)).sum() < per_token else (low, rate)
    found: Floats = 1.0 - np.exp(-high * weights)
    return found


@cache
def _largest_of(ranks: int) -> float:
    """Expected maximum of ``ranks`` normal numbers that add up to 0, in standard deviations of one."""
    at = np.linspace(-8.0, 8.0, 4001)
    below = np.array([0.5 * (1.0 + math.erf(x / math.sqrt(2.0))) for x in at]) ** ranks
    return float((np.diff(below) * (at[:-1] + at[1:]) / 2.0).sum()) / math.sqrt(1.0 - 1.0 / ranks)
