"""Ranges of load in which a role of a given size neither grows nor shrinks, so the rules can be skipped.

A need is a ceiling of load over rate, so each bound of "this many instances are enough" is one integer per
load. The bounds are computed once per supply and compared at every call.
"""

from fractions import Fraction
from math import floor, inf

from policies.scaling.rules import Bounds, ScalingRules, exact, link_rate
from serving.protocols.scaling import RoleView, ScalingView


class Band:
    """The loads at which a role needs neither more nor fewer instances, at this supply and these rates.

    The role does not grow while every load is at most its ``high``, and does not shrink while any load is at
    least its ``low``. In the order backlog, KV, migrating tokens.
    """

    __slots__ = (
        "high_backlog", "high_kv", "high_migrating", "kv_tokens_per_instance", "kv_tokens_per_s",
        "low_backlog", "low_kv", "low_migrating", "maximum", "minimum", "prefill_tokens_per_s", "supply",
    )  # fmt: skip

    def __init__(self, view: ScalingView, role: RoleView, rules: ScalingRules) -> None:
        self.supply, self.minimum, self.maximum = role.supply, role.minimum, role.maximum
        self.prefill_tokens_per_s = view.prefill_tokens_per_s
        self.kv_tokens_per_instance = view.kv_tokens_per_instance
        self.kv_tokens_per_s = view.kv_tokens_per_s
        link = link_rate(view.kv_tokens_per_s, rules.link_rule, self.supply)
        serves_prefill, serves_decode = role.role != "decode", role.role != "prefill"
        hands_over = role.role == "decode"
        self.low_backlog, self.high_backlog = self._edges(
            exact(view.prefill_tokens_per_s), rules.prefill, serves_prefill
        )
        self.low_kv, self.high_kv = self._edges(
            Fraction(view.kv_tokens_per_instance), rules.memory, serves_decode
        )
        self.low_migrating, self.high_migrating = self._edges(link, rules.link, hands_over)

    def _edges(self, per_instance: Fraction, bounds: Bounds, counts: bool) -> tuple[float, float]:
        """(low, high) of one load; ``counts``: the role has a rule for it."""
        supply = self.supply
        if not self.minimum <= supply <= self.maximum:
            return inf, -inf  # out of its own bounds: always evaluate the rules
        low, high = inf, inf
        if counts:
            low = floor(exact(bounds.lower) * per_instance * (supply - 1)) + 1
            high = floor(exact(bounds.upper) * per_instance * supply)
        elif supply <= 1:  # any work needs one instance, and is enough to keep it
            low, high = supply, inf if supply else 0
        if supply == self.minimum:
            low = 0
        return low, inf if supply == self.maximum else high

    def fits(self, view: ScalingView, role: RoleView) -> bool:
        """Whether the band was made for these limits and rates; the caller must check the supply."""
        return (
            self.minimum == role.minimum
            and self.maximum == role.maximum
            and self.prefill_tokens_per_s == view.prefill_tokens_per_s
            and self.kv_tokens_per_instance == view.kv_tokens_per_instance
            and self.kv_tokens_per_s == view.kv_tokens_per_s
        )


class RoleMemory:
    """What a load monitor remembers of one role of one model; ``below_since_ns``: None if not below.

    ``bands``: by supply. An elastic role has few supplies and returns to them again and again.
    """

    __slots__ = ("bands", "below_since_ns")

    def __init__(self) -> None:
        self.bands: dict[int, Band] = {}
        self.below_since_ns: int | None = None

    def learn(self, view: ScalingView, role: RoleView, rules: ScalingRules) -> None:
        """Compute and keep the band for the present supply."""
        band = self.bands.get(role.supply)
        if band is None or not band.fits(view, role):
            self.bands[role.supply] = Band(view, role, rules)

    def is_quiet(self, view: ScalingView, role: RoleView, down_after_ns: int) -> bool:
        """Whether the role needs no decision; if so, ``below_since_ns`` is up to date."""
        band = self.bands.get(role.supply)
        if (
            band is None
            or view.backlog_tokens > band.high_backlog
            or view.kv_tokens > band.high_kv
            or view.migrating_tokens > band.high_migrating
            or not band.fits(view, role)
        ):
            return False
        if (
            view.backlog_tokens >= band.low_backlog
            or view.kv_tokens >= band.low_kv
            or view.migrating_tokens >= band.low_migrating
        ):
            self.below_since_ns = None
            return True
        since_ns = self.below_since_ns
        return since_ns is not None and view.now_ns - since_ns < down_after_ns
