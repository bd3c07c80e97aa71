"""NVIDIA Dynamo's planner: by forecast throughput every few minutes, and by load every few seconds.

Rules: ai-dynamo/dynamo, planner/core/throughput_scaling.py and load_scaling.py.
"""

from collections import deque
from collections.abc import Callable
from math import ceil
from typing import Final

from policies.scaling.regression import least_squares
from policies.scaling.replica_counts import Due, ReplicaCounts, period_ns, positive, serving_count
from serving.protocols.scaling import RoleView, ScaleDecision, ScalingView
from serving.protocols.signals import InstanceSignals, Signals
from serving.vocabulary.estimates import Estimates

FORECASTS: Final = ("constant", "smoothing")


class DynamoThroughput:
    """Replicas = forecast demand over the rate of one engine, once per ``period_s``.

    Prefill: requests x prompt tokens x (1 - hit share) over prefill tokens/s. Decode: requests x output
    tokens over the tokens/s of one engine whose requests have a context of prompt + output / 2 and a time
    per output token of ``tpot_ms``. ``forecast``: ``constant`` takes the last period's numbers; ``smoothing``
    Holt's linear trend (weights 0.5 and 0.3). At most ``most_per_step`` instances change at once.
    """

    reads_signals = True

    def __init__(
        self,
        *,
        estimates: Estimates,
        forecast: str = "constant",
        tpot_ms: float = 50.0,
        period_s: float = 180.0,
        most_per_step: int = 8,
    ) -> None:
        if forecast not in FORECASTS or most_per_step < 1:
            raise ValueError(f"forecast must be one of {', '.join(FORECASTS)}, and most_per_step 1 or more")
        self._estimates, self._forecast = estimates, forecast
        self._tpot_s, self._most = positive("tpot_ms", tpot_ms) / 1e3, most_per_step
        self.period_s = self.window_s = period_s
        self._due = Due(period_ns("period_s", period_s))
        self.no_change_until_ns = self._due.next_ns
        self._trends: dict[tuple[str, str], _Trend] = {}

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        """Set the roles to the forecast."""
        if (signals := self._due.signals(view)) is None:
            return ()
        counts = ReplicaCounts(view)
        requests = self._expected(view, "requests", signals.requests_per_s)
        prompt = self._expected(view, "prompt", signals.mean_prompt_tokens)
        output = self._expected(view, "output", signals.mean_output_tokens)
        if prompt is None or output is None or requests is None:
            return counts.with_first()
        prefill = requests * prompt * (1 - signals.prefix_hit_share) / view.prefill_tokens_per_s
        decode = requests * output / self._decode_tokens_per_s(view, prompt + output / 2)
        reason = f"{requests:.2f} requests/s of {prompt:.0f} and {output:.0f} tokens are expected"
        for role in view.roles:
            need = {"prefill": prefill, "decode": decode, "both": prefill + decode}[role.role]
            wanted = max(1, ceil(need))
            counts.set(role, max(role.supply - self._most, min(role.supply + self._most, wanted)), reason)
        return counts.with_first()

    def _expected(self, view: ScalingView, what: str, now: float | None) -> float | None:
        if now is None:
            return None
        if self._forecast == "constant":
            return now
        return self._trends.setdefault((view.model, what), _Trend()).next(now)

    def _decode_tokens_per_s(self, view: ScalingView, context: float) -> float:
        """Tokens/s of one engine at the largest batch that memory holds and ``tpot_ms`` allows."""
        known = self._estimates.of(view.model)
        fit = max(1.0, view.kv_tokens_per_instance / max(1.0, context))
        # A step's time is taken as proportional to its KV tokens from the one step that is known.
        per_token_s = known.decode_step_s / max(1, known.decode_sequences * known.decode_context_tokens)
        step_s = max(known.decode_step_s / 2, per_token_s * fit * context)
        batch = fit if step_s <= self._tpot_s else max(1.0, fit * self._tpot_s / step_s)
        return batch / max(min(step_s, self._tpot_s), 1e-4)


class _Trend:
    """Holt's linear smoothing."""

    def __init__(self) -> None:
        self._level: float | None = None
        self._slope = 0.0

    def next(self, now: float) -> float:
        """The value expected after this one; never below 0."""
        if self._level is None:
            self._level = now
            return now
        before = self._level
        self._level = 0.5 * now + 0.5 * (before + self._slope)
        self._slope = 0.3 * (self._level - before) + 0.7 * self._slope
        return max(0.0, self._level + self._slope)


class DynamoLoad:
    """One instance more if every engine's estimated latency exceeds its objective; one less if N - 1 do well.

    Every ``period_s``: TTFT of an engine is regressed on its prompt tokens in flight, time per token on its
    KV use (the last ``samples`` means of scrapes, at least 5). Nothing changes while an instance loads. One
    less, if at N / (N - 1) of the load the estimate stays below ``slack`` of the objective and KV fits.
    """

    reads_signals = True
    metrics_read = ("kv_use", "prompt_tokens")

    def __init__(
        self,
        *,
        ttft_ms: float = 1000.0,
        tpot_ms: float = 50.0,
        slack: float = 0.8,
        samples: int = 64,
        period_s: float = 5.0,
        window_s: float = 15.0,
    ) -> None:
        if not 0 < slack <= 1 or samples < 5:
            raise ValueError("slack must be above 0 and at most 1, and samples 5 or more")
        self._limits_s = positive("ttft_ms", ttft_ms) / 1e3, positive("tpot_ms", tpot_ms) / 1e3
        self._slack, self._samples = slack, samples
        self.period_s = self.scrape_s = period_s
        self.window_s = window_s
        self._due = Due(period_ns("period_s", period_s))
        self.no_change_until_ns = self._due.next_ns
        self._seen: dict[tuple[str, str], deque[tuple[float, float]]] = {}

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        """At most one instance more or less of each role."""
        if (signals := self._due.signals(view)) is None:
            return ()
        counts = ReplicaCounts(view)
        for role in view.roles:
            if serving_count(role) and not role.in_state("loading"):
                self._decide(view, signals, role, counts)
        return counts.with_first()

    def _decide(self, view: ScalingView, signals: Signals, role: RoleView, counts: ReplicaCounts) -> None:
        own = signals.of_role(role.role)
        if not own:
            return
        over, under = [], []
        for name, limit_s in self._objectives(role):
            loads = [self._load(name, instance, signals, len(own)) for instance in own]
            estimate = self._regressed(view, signals, name, sum(loads) / len(own))
            if estimate is None:
                return
            over.append(all(estimate(load) > limit_s for load in loads))
            more = len(own) / max(1, len(own) - 1)
            under.append(all(estimate(load * more) <= self._slack * limit_s for load in loads))
        kv_fits = sum([instance.kv_use for instance in own]) <= 0.9 * (len(own) - 1)
        if any(over):
            counts.set(role, role.supply + 1, "the estimate of every instance exceeds its objective")
        elif len(own) > 1 and all(under) and (kv_fits or role.role == "prefill"):
            counts.set(role, role.supply - 1, f"{len(own) - 1} instances keep within {self._slack:g} of it")

    def _objectives(self, role: RoleView) -> list[tuple[str, float]]:
        ttft, tpot = ("ttft", self._limits_s[0]), ("tpot", self._limits_s[1])
        return {"prefill": [ttft], "decode": [tpot]}.get(role.role, [ttft, tpot])

    def _load(self, name: str, instance: InstanceSignals, signals: Signals, count: int) -> float:
        if name == "tpot":
            return instance.kv_use
        queued = signals.queued * (signals.mean_prompt_tokens or 0.0) / count
        return instance.prompt_tokens + queued

    def _regressed(
        self, view: ScalingView, signals: Signals, name: str, load: float
    ) -> Callable[[float], float] | None:
        """A latency in s by load; None before five samples."""
        latency = signals.measured.ttft if name == "ttft" else signals.measured.tpot
        seen = self._seen.setdefault((view.model, name), deque(maxlen=self._samples))
        if latency.count:
            seen.append((load, latency.mean_ns / 1e9))
        if len(seen) < 5:
            return None
        fitted, x, y = least_squares(seen)
        slope = max(0.0, fitted)
        return lambda at: y + slope * (at - x)
