"""Llumnix v2's adaptive prefill and decode: as few decode instances as keep the time per output token.

Source: llumnix-project/llumnix, docs/source/design/scheduler/adaptive_pd_scheduling.md, and its flags:
--tpot-slo 50, --tpot-slo-dispatch-threshold 0.85, --tpot-migrate-out-ceil-threshold 0.95 and
--tpot-migrate-out-floor-threshold 0.60. It predicts from a profile; here ``ModelEstimates.step_s`` predicts,
for contexts of the prompt and half of ``output_tokens``.
"""

from collections.abc import Sequence

from policies.dispatch import LeastOutstanding
from serving.protocols.migration import InstancesView, Pair, SourceView
from serving.protocols.splitting import SplitView
from serving.vocabulary.estimates import Estimates
from serving.vocabulary.request import Request


class TpotPrediction:
    """The time per output token of instances, in ms. ``output_tokens``: what requests write in the mean."""

    def __init__(self, estimates: Estimates, output_tokens: float) -> None:
        if not 0 <= output_tokens < float("inf"):
            raise ValueError(f"output_tokens is {output_tokens}, and must be 0 or more")
        self._estimates, self._half = estimates, output_tokens / 2

    def ms(self, model: str, requests: int, prompt_tokens: int) -> float:
        """Of an instance with so many requests, whose prompts have so many tokens together."""
        return 1e3 * self._estimates.of(model).step_s(requests, round(prompt_tokens + requests * self._half))


class AdaptivePd:
    """Computed prompts go to the fullest decode instance whose predicted time per token keeps the objective.

    If there is none, the prefill instance with the fewest prompt tokens becomes a decode instance, except the
    reserved one; if none is left, the decode instance of the least predicted time takes them. A decode
    instance without requests computes prompts again, except the reserved one. Reserved are the first of each
    role; if one is lost, the next of its role. Prompts wait in one queue for an idle prefill instance, which
    is the one of the lowest predicted time to the first token.
    """

    def __init__(
        self,
        *,
        estimates: Estimates,
        tpot_ms: float = 50.0,
        dispatch_share: float = 0.85,
        output_tokens: float = 200.0,
    ) -> None:
        if not 0 < dispatch_share <= 1 or not 0 < tpot_ms < float("inf"):
            raise ValueError("tpot_ms must be above 0, and dispatch_share above 0 and at most 1")
        self._predicted = TpotPrediction(estimates, output_tokens)
        self._limit_ms = tpot_ms * dispatch_share
        self._reserved: dict[str, tuple[int, int]] = {}  # by model: prefill, decode
        self.dispatch = LeastOutstanding().dispatch  # where instances do both

    def decode_place(self, requests: Sequence[Request], view: SplitView) -> tuple[int, str] | None:
        """The instance that decodes these requests."""
        prefill, _ = self._reserve(view)
        own = [one for one in view.decode if not view.receives(one) and view.has_room(one, requests[0])]
        tokens = sum([request.prompt_tokens for request in requests])
        times = {}
        for replica in own:
            running, held = view.decoding(replica)
            times[replica] = self._predicted.ms(view.model, running + len(requests), held + tokens)
        fitting = [(-ms, replica) for replica, ms in times.items() if ms <= self._limit_ms]
        if fitting:
            minus_ms, replica = min(fitting)
            return replica, f"the fullest within {self._limit_ms:g} ms a token: {-minus_ms:.1f}"
        if view.turning or any(view.receives(one) for one in view.decode):
            return None  # a decode instance is about to take more
        spare = [one for one in view.prefill if one != prefill] or ([] if view.decode else view.prefill)
        if spare:
            replica = min(spare, key=lambda one: (view.prompt_tokens(one), one))
            return (
                replica,
                f"no decode instance keeps {self._limit_ms:g} ms a token with {len(requests)} more",
            )
        if not times:
            return None  # memory is full everywhere
        replica = min(times, key=lambda one: (times[one], one))
        return replica, f"none keeps {self._limit_ms:g} ms a token: {times[replica]:.1f} is the least"

    def prefills_again(self, replica: int, view: SplitView) -> str | None:
        """An empty decode instance computes prompts, unless it is the reserved one."""
        _, decode = self._reserve(view)
        if replica != decode:
            return "it decodes nothing"
        return None if view.prefill or view.turning or not view.backlog_tokens else "no instance prefills"

    def _reserve(self, view: SplitView) -> tuple[int, int]:
        prefill, decode = self._reserved.get(view.model, (-1, -1))
        if prefill not in view.prefill:
            prefill = min(view.prefill, default=-1)
        if decode not in view.decode:
            decode = min(view.decode, default=-1)
        self._reserved[view.model] = prefill, decode
        return prefill, decode


class BinPacking:
    """Mitigation and consolidation: each moves one request between one pair of decode instances a period.

    Mitigation: from the instance of the highest predicted time per token, if that exceeds ``ceil_share`` of
    the objective, to the fullest that keeps it with one request more. Consolidation: of the instances below
    ``floor_share``, the emptiest gives to the fullest that stays within ``dispatch_share``; the reserved
    decode instance, the first there was, gives none away. The source does not say which request moves: here
    the one of least context.
    """

    def __init__(
        self,
        *,
        estimates: Estimates,
        tpot_ms: float = 50.0,
        ceil_share: float = 0.95,
        floor_share: float = 0.6,
        dispatch_share: float = 0.85,
        output_tokens: float = 200.0,
    ) -> None:
        if not 0 < floor_share <= dispatch_share <= ceil_share <= 1 or not 0 < tpot_ms < float("inf"):
            raise ValueError(
                "tpot_ms must be above 0, and floor_share, dispatch_share and ceil_share above 0, in this "
                "order, and at most 1"
            )
        self._predicted, self._tpot_ms = TpotPrediction(estimates, output_tokens), tpot_ms
        self._ceil_ms, self._floor_ms = tpot_ms * ceil_share, tpot_ms * floor_share
        self._dispatch_ms = tpot_ms * dispatch_share
        self._reserved: dict[str, int] = {}

    def pair(self, view: InstancesView) -> Sequence[Pair]:
        """At most one pair of each kind."""
        if self._reserved.get(view.model) not in view.taking and view.taking:
            self._reserved[view.model] = view.taking[0]
        free = [one for one in view.taking if not view.engaged(one)]
        now_ms = {one: self._ms(view, one) for one in free if view.load(one, "outstanding")}
        pairs = list[Pair]()
        over = max(now_ms, key=lambda one: (now_ms[one], -one), default=-1)
        if now_ms.get(over, 0.0) > self._ceil_ms:
            slow = f"{now_ms[over]:.1f} ms a token is too slow"
            self._add(pairs, view, source=over, options=free, limit_ms=self._tpot_ms, why=slow)
        used = {end for pair in pairs for end in (pair.source, pair.destination)}
        under = [
            (ms, one)
            for one, ms in now_ms.items()
            if ms < self._floor_ms and one not in used and one != self._reserved[view.model]
        ]
        if under:
            ms, source = min(under)
            fuller = [one for one in now_ms if one not in used and now_ms[one] >= ms]
            emptied = f"{ms:.1f} ms a token: to be emptied"
            self._add(pairs, view, source=source, options=fuller, limit_ms=self._dispatch_ms, why=emptied)
        return pairs

    def choose(self, view: SourceView) -> tuple[int, str] | None:
        """The request of least context; on a tie the last to arrive."""
        options = [(view.context_tokens(one), -view.arrival_ns(one), -one) for one in view.decoding()]
        if not options:
            return None
        context, _, negative = min(options)
        return -negative, f"the shortest, {context} tokens"

    def _ms(self, view: InstancesView, replica: int, more: int = 0) -> float:
        requests, tokens = view.load(replica, "outstanding"), view.prompt_tokens(replica)
        each = tokens // requests if requests else 0
        return self._predicted.ms(view.model, requests + more, tokens + more * each)

    def _add(
        self,
        pairs: list[Pair],
        view: InstancesView,
        *,
        source: int,
        options: Sequence[int],
        limit_ms: float,
        why: str,
    ) -> None:
        """Pair the source with the fullest of the others that keeps the limit with a request more."""
        need = max(view.kv_demands(source).values(), default=0)
        roomy = [
            one
            for one in options
            if one != source and view.kv_tokens(one) - view.load(one, "kv_demand") >= need
        ]
        times = [(self._ms(view, one, 1), one) for one in roomy]
        fitting = [(-ms, one) for ms, one in times if ms <= limit_ms]
        if fitting:
            minus_ms, destination = min(fitting)
            pairs.append(Pair(source, destination, f"{why}; {-minus_ms:.1f} there with one more"))
