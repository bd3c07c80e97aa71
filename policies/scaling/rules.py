"""How many instances a load needs: BlitzScale's rules, and how a configuration writes them.

OSDI 2025, section 5.3, has the idea; rules and constants are those its authors ship. Each rule computes how
many instances a load needs at an upper and at a lower bound of load per instance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import inf
from typing import Literal, cast

from serving.protocols.scaling import Act, RoleView, ScalingView
from serving.vocabulary.fact import fact
from serving.vocabulary.replica import Role

LinkRule = Literal["shipped", "linear"]

ROLE_ORDER: tuple[Role, ...] = ("prefill", "both", "decode")
ALL_WAYS: tuple[Act, ...] = ("cancel_drain", "revive", "mutate")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Load per instance: below ``lower`` fewer would do, above ``upper`` more are needed."""

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not 0 < self.lower <= self.upper < inf:
            raise ValueError("scaling bounds need 0 < lower <= upper")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRules:
    """``prefill`` and ``link`` in seconds of backlog per instance, ``memory`` as a share of KV memory.

    ``link_rule``: ``shipped`` divides the migrating tokens by what all present decode instances take in, so
    it asks for few if there are many; ``linear`` by what one takes in. ``down_after_ns``: how long fewer must
    do before one is drained, and again before the next. ``prescale_from``: prefill growing by this many also
    starts ``prescale_by`` decode instances (0: never; the sources do not say how many, so 1). ``ways``: what
    is tried before parameters are loaded, always in the order of ``ALL_WAYS``.
    """

    prefill: Bounds = Bounds(0.5, 0.7)
    memory: Bounds = Bounds(0.75, 0.95)
    link: Bounds = Bounds(0.4, 0.8)
    link_rule: LinkRule = "shipped"
    down_after_ns: int = 333_000_000
    prescale_from: int = 1
    prescale_by: int = 1
    ways: tuple[Act, ...] = ALL_WAYS

    def __post_init__(self) -> None:
        if self.down_after_ns < 0 or self.prescale_from < 0 or self.prescale_by < 0:
            raise ValueError("scaling rules need down_after_ns, prescale_from and prescale_by >= 0")
        if self.link_rule not in ("shipped", "linear") or not set(self.ways) <= set(ALL_WAYS):
            raise ValueError(f"link_rule is shipped or linear, and ways are some of {', '.join(ALL_WAYS)}")


def scaling_rules(
    *,
    prefill: Sequence[float] = (0.5, 0.7),
    memory: Sequence[float] = (0.75, 0.95),
    link: Sequence[float] = (0.4, 0.8),
    link_rule: str = "shipped",
    scale_down_ms: float = 333,
    prescale_from: int = 1,
    prescale_by: int = 1,
    ways: Sequence[str] = ALL_WAYS,
) -> ScalingRules:
    """Rules from the plain values of a configuration: bounds as [lower, upper], ``scale_down_ms`` in ms.

    Raises ValueError: one sentence that names the key.
    """
    if not _is_number(scale_down_ms) or not 0 <= scale_down_ms < inf:
        raise ValueError(f"scale_down_ms is {scale_down_ms}, and must be a time of 0 ms or more")
    for name, count in (("prescale_from", prescale_from), ("prescale_by", prescale_by)):
        if type(count) is not int or count < 0:
            raise ValueError(f"{name} is {count}, and must be a number of instances, 0 or more")
    if link_rule not in ("shipped", "linear"):
        raise ValueError(f"link_rule is {link_rule}, and must be shipped or linear")
    unknown = [ways] if isinstance(ways, str) else [way for way in ways if way not in ALL_WAYS]
    if unknown:
        raise ValueError(f"ways has {unknown[0]}, and must be a list of names from {', '.join(ALL_WAYS)}")
    return ScalingRules(
        prefill=_bounds("prefill", prefill),
        memory=_bounds("memory", memory),
        link=_bounds("link", link),
        link_rule=cast(LinkRule, link_rule),
        down_after_ns=round(exact(scale_down_ms) * 1_000_000),
        prescale_from=prescale_from,
        prescale_by=prescale_by,
        ways=cast(tuple[Act, ...], tuple(ways)),
    )


def _bounds(name: str, pair: Sequence[float]) -> Bounds:
    numbers = [] if isinstance(pair, str | int | float) else list(pair)
    if len(numbers) != 2 or not all(map(_is_number, numbers)) or not 0 < numbers[0] <= numbers[1] < inf:
        raise ValueError(f"{name} is {pair}, and must be [lower, upper] with 0 < lower <= upper")
    return Bounds(numbers[0], numbers[1])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@fact
class Need:
    """The fewest instances that carry the loads, and the most that they keep busy.

    ``loads``: how much of what; most looks decide nothing, so it is put into words only where it is read.
    """

    least: int
    most: int
    loads: tuple[tuple[int, str], ...]

    @property
    def why(self) -> str:
        """The loads in words."""
        return ", ".join([f"{amount} {what}" for amount, what in self.loads])


def prefill_need(backlog_tokens: int, tokens_per_s: float, bounds: Bounds) -> Need:
    """Instances that work off the backlog within ``upper`` and within ``lower`` seconds."""
    return _need(backlog_tokens, tokens_per_s, bounds, "prompt tokens")


def memory_need(kv_tokens: int, tokens_per_instance: int, bounds: Bounds) -> Need:
    """Instances whose KV memory is filled to ``upper`` and to ``lower``."""
    return _need(kv_tokens, tokens_per_instance, bounds, "KV tokens")


def link_need(
    migrating_tokens: int, tokens_per_s: float, bounds: Bounds, rule: LinkRule, decode: int
) -> Need:
    """Decode instances that take the migrating KV within ``upper`` and ``lower`` seconds.

    ``decode``: the present number of decode instances (at least 1); ``shipped`` multiplies the rate by it.
    """
    return _need(migrating_tokens, tokens_per_s, bounds, "KV tokens to move", _links(rule, decode))


def link_rate(tokens_per_s: float, rule: LinkRule, decode: int) -> Fraction:
    """The KV tokens/s per instance that the link rule assumes."""
    return exact(tokens_per_s) * _links(rule, decode)


def _links(rule: LinkRule, decode: int) -> int:
    return max(decode, 1) if rule == "shipped" else 1


def _need(amount: int, per_instance: float, bounds: Bounds, what: str, times: int = 1) -> Need:
    """``per_instance``: what one instance takes, ``times`` that many."""
    assert amount >= 0 < per_instance, "a load is not negative, and an instance does something"
    if not amount:
        return Need(0, 0, ((0, what),))
    over, over_of, under, under_of = _quotients(bounds.upper, bounds.lower, per_instance)
    least, most = -(-amount * over_of // (over * times)), -(-amount * under_of // (under * times))
    return Need(least, most, ((amount, what),))


@lru_cache(maxsize=256)
def _quotients(upper: float, lower: float, per_instance: float) -> tuple[int, int, int, int]:
    """Each bound * per_instance as a quotient of integers: dividing by it takes no fraction at each look."""
    rate = Fraction(per_instance) if type(per_instance) is int else exact(per_instance)
    over, under = exact(upper) * rate, exact(lower) * rate
    return over.numerator, over.denominator, under.numerator, under.denominator


@lru_cache(maxsize=256)
def exact(number: float) -> Fraction:
    """The decimal as written: 0.7 is 7/10, so rounding does not put a load at the bound above it."""
    return Fraction(repr(float(number)))


def need_of(view: ScalingView, role: RoleView, rules: ScalingRules) -> Need:
    """The largest of the role's needs; while there is any work at least one instance of each role."""
    kind = role.role
    if kind == "decode":
        need = memory_need(view.kv_tokens, view.kv_tokens_per_instance, rules.memory)
        args = view.migrating_tokens, view.kv_tokens_per_s, rules.link, rules.link_rule, role.supply
        need = _larger(need, link_need(*args))
    else:
        need = prefill_need(view.backlog_tokens, view.prefill_tokens_per_s, rules.prefill)
        if kind == "both":
            need = _larger(need, memory_need(view.kv_tokens, view.kv_tokens_per_instance, rules.memory))
    if (need.least and need.most) or not view.has_work:
        return need
    return Need(need.least or 1, need.most or 1, need.loads)


def _larger(one: Need, other: Need) -> Need:
    """What satisfies both."""
    return Need(max(one.least, other.least), max(one.most, other.most), one.loads + other.loads)


def within(role: RoleView, count: int) -> int:
    """``count``, limited to the role's minimum and maximum."""
    return max(role.minimum, min(role.maximum, count))
