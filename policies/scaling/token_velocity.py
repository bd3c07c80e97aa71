"""Scalers that divide tokens by the velocity of one instance: llm-d's token velocity, and TokenScale.

llm-d: llm-d-autoscaling, benchmark/token-velocity-autoscaling. TokenScale: arXiv 2512.03416.
"""

from math import ceil

from policies.scaling.hpa import Behaviour, Pace
from policies.scaling.metrics import total
from policies.scaling.replica_counts import Due, HeldCounts, ReplicaCounts, period_ns, positive
from serving.protocols.scaling import RoleView, ScaleDecision, ScalingView
from serving.protocols.signals import RoleMeans, Signals
from serving.vocabulary.estimates import Estimates


class TokenVelocity:
    """Prefill: prompt tokens in flight over what one instance computes in ``threshold_s``. Decode: KV use.

    Instances that do both take the larger. ``prefill_tokens_per_s``: measured for the model on its GPUs as
    prompt tokens / TTFT on idle instances, hand-over included; 0: the run's estimate of the prefill alone.
    ``threshold_s``: the objective of TTFT less the TTFT on idle instances. The source's ScaledObject polls
    every 15 s and lets an HPA add a pod every 180 s and take one every 300 s.
    """

    reads_signals = True
    metrics_read = ("kv_use", "prompt_tokens")

    def __init__(
        self,
        *,
        prefill_tokens_per_s: float = 0.0,
        threshold_s: float = 1.5,
        kv_use: float = 0.8,
        poll_s: float = 15.0,
        tolerance: float = 0.1,
        up_s: float = 180.0,
        down_s: float = 300.0,
        stabilisation_s: float = 300.0,
    ) -> None:
        if prefill_tokens_per_s < 0 or not 0 < kv_use <= 1 or not 0 <= tolerance < 1:
            raise ValueError(
                "prefill_tokens_per_s must be 0 or more, kv_use above 0 and at most 1, "
                "and tolerance 0 or more and below 1"
            )
        self._velocity, self._threshold_s = prefill_tokens_per_s, positive("threshold_s", threshold_s)
        self._kv_use, self._tolerance, self.period_s = kv_use, tolerance, poll_s
        self._due = Due(period_ns("poll_s", poll_s))
        up, down = Pace(pods=1, period_s=up_s), Pace(pods=1, period_s=down_s)
        self._behaviour = Behaviour(up, stabilisation_s, down)
        self.no_change_until_ns = self._due.next_ns

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        """Follow the tokens, once per poll."""
        if (signals := self._due.signals(view)) is None:
            return ()
        counts = ReplicaCounts(view)
        for role in view.roles:
            if role.supply:
                wanted, reason = self._wanted(view, signals, role)
                counts.set(role, self._behaviour.allowed(view, role, max(1, wanted)), reason)
        return counts.with_first()

    def _wanted(self, view: ScalingView, signals: Signals, role: RoleView) -> tuple[int, str]:
        wanted, words = 0, list[str]()
        if role.role != "decode":
            velocity = self._velocity or view.prefill_tokens_per_s
            tokens = total("in_flight_tokens", signals, role.role) or 0
            wanted = self._count(tokens / (velocity * self._threshold_s), role)
            words.append(
                f"{tokens:.0f} prompt tokens in flight at {velocity:.0f}/s within {self._threshold_s:g} s"
            )
        if role.role != "prefill":
            used = total("kv_use", signals, role.role) or 0.0
            wanted = max(wanted, self._count(used / self._kv_use, role))
            words.append(f"KV memory of {used:.2f} instances at {self._kv_use:g}")
        return wanted, ", ".join(words)

    def _count(self, instances: float, role: RoleView) -> int:
        """Whole instances; as many as there are while the difference is within the tolerance."""
        return role.supply if abs(instances / role.supply - 1) <= self._tolerance else ceil(instances)


class TokenScale:
    """Prefillers by arriving prompt tokens, decoders by expected output tokens, over their velocities.

    A prefiller's velocity is the smaller of what it computes and what its links send; a decoder's is the
    tokens of prompt and output that it finishes per second at the target time per output token. The paper
    predicts output lengths; here they are the means of finished requests (``output_tokens`` before the
    first). Its convertible decoders are a dispatcher's (``policies.dispatch``); at least as many decoders
    stay as the role's minimum says. The paper names no period: ``period_s`` is ours.
    """

    reads_signals = True

    def __init__(
        self,
        *,
        estimates: Estimates,
        output_tokens: float = 200.0,
        tpot_ms: float = 50.0,
        period_s: float = 1.0,
        hold_s: float = 30.0,
        window_s: float = 10.0,
    ) -> None:
        self._estimates = estimates
        self._output_tokens, self._tpot_s = (
            positive("output_tokens", output_tokens),
            positive("tpot_ms", tpot_ms) / 1e3,
        )
        self.period_s = self.scrape_s = period_s
        self.window_s = window_s
        self._due, self._held = Due(period_ns("period_s", period_s)), HeldCounts(round(hold_s * 1e9))
        self.no_change_until_ns = self._due.next_ns

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        """Divide arriving tokens by velocities, once per period."""
        counts = ReplicaCounts(view)
        due = self._due.is_due(view)
        for role in view.roles:
            if due and view.signals is not None and role.supply:
                wanted, reason = self._wanted(view, view.signals, role)
                counts.set(role, self._held.held(view, role, max(1, wanted)), reason)
        return counts.with_first()

    def _wanted(self, view: ScalingView, signals: Signals, role: RoleView) -> tuple[int, str]:
        prefill = decode = 0.0
        words = list[str]()
        if role.role != "decode":
            velocity = view.prefill_tokens_per_s
            if role.role == "prefill":
                velocity = min(velocity, view.kv_tokens_per_s)
            prefill = signals.prompt_tokens_per_s * (1 - signals.prefix_hit_share) / velocity
            words.append(f"{signals.prompt_tokens_per_s:.0f} prompt tokens/s at {velocity:.0f}/s")
        if role.role != "prefill":
            decode, word = self._decoders(view, signals)
            words.append(word)
        return ceil(prefill + decode if role.role == "both" else max(prefill, decode)), ", ".join(words)

    def _decoders(self, view: ScalingView, signals: Signals) -> tuple[float, str]:
        output = signals.mean_output_tokens or self._output_tokens
        prompt = signals.mean_prompt_tokens or 0.0
        # Requests that fit into KV memory at their mean length, each with a token per ``tpot_ms``.
        fit = max(1.0, view.kv_tokens_per_instance / max(1.0, prompt + output / 2))
        most = max(self._estimates.of(view.model).decode_sequences, 1)
        velocity = min(fit, most) * (prompt + output) / (output * self._tpot_s)
        arriving = signals.requests_per_s * (prompt + output)
        return arriving / velocity, f"{arriving:.0f} tokens/s of requests at {velocity:.0f}/s"


class HeteroScale:
    """Decode tokens per second as the only signal, prefill instances in a fixed ratio (arXiv 2508.19559).

    ``tokens_per_s``: of one decode instance (of one that does both). Latency is negative feedback: while the
    mean time per output token exceeds ``tpot_ms``, one more is wanted than the signal says. Its placement in
    RDMA subgroups is the provisioner's here. The paper states no period for its product: ``period_s`` is
    ours.
    """

    reads_signals = True

    def __init__(
        self,
        *,
        tokens_per_s: float = 1000.0,
        prefill_per_decode: float = 1.0,
        tpot_ms: float = 50.0,
        tolerance: float = 0.1,
        period_s: float = 15.0,
        stabilisation_s: float = 300.0,
    ) -> None:
        self._rate = positive("tokens_per_s", tokens_per_s)
        self._ratio = positive("prefill_per_decode", prefill_per_decode)
        self._tpot_ns, self._tolerance = positive("tpot_ms", tpot_ms) * 1e6, tolerance
        self.period_s = period_s
        self._due, self._held = Due(period_ns("period_s", period_s)), HeldCounts(round(stabilisation_s * 1e9))
        self.no_change_until_ns = self._due.next_ns

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        """Follow the decode rate; prefill follows decode."""
        if (signals := self._due.signals(view)) is None:
            return ()
        counts, by_role = ReplicaCounts(view), {role.role: role for role in view.roles}
        decode = by_role.get("decode") or by_role["both"]
        if not decode.supply:
            return counts.with_first()
        rate = self._decoded_per_s(signals, signals.mean_of(decode.role))
        wanted = decode.supply
        if abs(rate / (self._rate * decode.supply) - 1) > self._tolerance:
            wanted = max(1, ceil(rate / self._rate))
        tpot = signals.measured.tpot
        if tpot.count and tpot.mean_ns > self._tpot_ns:
            wanted = max(wanted, decode.supply + 1)
        reason = f"{rate:.0f} tokens/s are decoded, {self._rate:.0f} by one instance"
        wanted = self._held.held(view, decode, wanted)
        if "prefill" in by_role:
            prefill = ceil(wanted * self._ratio)
            counts.set(by_role["prefill"], prefill, f"{self._ratio:g} for each decode instance; {reason}")
        counts.set(decode, wanted, reason)
        return counts.with_first()

    def _decoded_per_s(self, signals: Signals, means: RoleMeans) -> float:
        """Tokens that running requests make, at the mean time per token of those that finished."""
        tpot_ns = signals.measured.tpot.mean_ns
        return means.running / (tpot_ns / 1e9) if tpot_ns else signals.output_tokens_per_s
