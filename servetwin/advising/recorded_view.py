"""What a scaler sees of a record at one instant: a view as the controller makes it, of what was recorded.

The scaler is the same object as in a run. A question that the record cannot answer is noted, and gets a
number that nothing is made of: what the scaler says then is thrown away.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

import numpy as np

from servetwin.advising.columns import (
    FINISHED,
    HITS,
    KV_USE,
    LATENCIES,
    OUTPUT,
    PROMPT,
    REPLICAS,
    REQUESTS,
    RUNNING,
    STATISTICS,
    TPOT,
    TTFT,
    WAITING,
)
from servetwin.advising.record import Record
from servetwin.advising.time_series import Floats
from serving.elastic.setup import ModelLimits
from serving.protocols.scaling import FixedRole, InstanceView, ScalingView
from serving.protocols.signals import StartingSignals
from serving.vocabulary.units import NS_PER_S

NS_PER_MS: Final = 1_000_000
QUEUE_AGE: Final = "the age of the queue (no metric of vLLM or SGLang has it)"
LENGTHS: Final = "the lengths of single requests"
UNFINISHED: Final = f"{WAITING} and a mean prompt length"
_ROLE: Final = "both"
_PROMPTS: Final = ("prompt_tokens", "in_flight_tokens")
"""Of an instance; the prompts that it computes now are in neither, as no metric has them."""


class Known:
    """Attributes that the record answers. ``lacking``: others -> (a value, what of the record is missing)."""

    def __init__(
        self, missing: set[str], known: Mapping[str, Any], lacking: Mapping[str, tuple[Any, str]]
    ) -> None:
        self._missing, self._known, self._lacking = missing, known, lacking

    def __getattr__(self, name: str) -> Any:
        if name in self._known:
            return self._known[name]
        if name not in self._lacking:
            raise AttributeError(name)
        value, what = self._lacking[name]
        self._missing.add(what)
        return value


class RecordedViews:
    """Views of a record for one scaler. ``missing``: what it asked for and the record lacks."""

    def __init__(
        self, record: Record, model: str, limits: ModelLimits, *, window_s: float, prefix_hit_share: float
    ) -> None:
        self.missing = set[str]()
        self._record, self._model, self._limits = record, model, limits
        self._window_s, self._hits = window_s, prefix_hit_share
        self._since_s = record.since_s
        self._prompt_tokens = record.mean_length(PROMPT)
        # Of the place that was looked at last: a scaler looks more often than metrics are scraped.
        self._signals: tuple[int, Any] = (-1, None)
        self._standing: tuple[int, FixedRole, dict[str, int]] | None = None

    def view(self, now_s: float, scraped_s: float | None) -> ScalingView:
        """The view at ``now_s``, with the metrics of the newest instant up to ``scraped_s`` (None: none).

        Both in seconds since the first instant. The instances are those at ``now_s``.
        """
        at = self._place(scraped_s) if scraped_s is not None and scraped_s >= 0 else None
        role, loads = self._at(self._place(now_s))
        known = {
            "now_ns": round(now_s * NS_PER_S), "model": self._model, "roles": (role,), "migrating_tokens": 0,
            "prefill_tokens_per_s": self._limits.prefill_tokens_per_s, "parked": (),
            "kv_tokens_per_instance": self._limits.kv_tokens, "kv_tokens_per_s": self._limits.kv_tokens_per_s,
            "spare": max(0, role.maximum - role.supply),
            "signals": None if at is None or not self._is_whole(at) else self._signals_at(at),
        }  # fmt: skip
        known |= loads
        lacking = {"backlog_tokens": (1, UNFINISHED), "kv_tokens": (1, KV_USE), "has_work": (True, WAITING)}
        return cast(ScalingView, Known(self.missing, known, lacking))

    def _at(self, at: int) -> tuple[FixedRole, dict[str, int]]:
        """The recorded instances and loads."""
        if self._standing is None or self._standing[0] != at:
            self._standing = at, self._role(at), self._loads(at)
        return self._standing[1:]

    def _place(self, at_s: float) -> int:
        return int(np.searchsorted(self._since_s, at_s + 1e-6, side="right")) - 1

    def _is_whole(self, at: int) -> bool:
        """Whether what the record has is known at this instant. Without requests there is no latency."""
        columns = self._record.columns
        return all(np.isfinite(values[at]) for name, values in columns.items() if name not in LATENCIES)

    def _value(self, column: str, at: int) -> float | None:
        values = self._record.columns.get(column)
        return None if values is None or not np.isfinite(values[at]) else float(values[at])

    def _role(self, at: int) -> FixedRole:
        serving = round(float(self._record.serving[at]))
        supply = max(serving, round(float(self._record.columns[REPLICAS][at])))
        shared = self._shares(at, serving)
        views = [
            InstanceView(
                number, "serving", outstanding=round(shared[WAITING][number] + shared[RUNNING][number])
            )
            if {WAITING, RUNNING} <= set(shared)
            else InstanceView(number, "serving")
            for number in range(serving)
        ]
        views += [InstanceView(number, "loading") for number in range(serving, supply)]
        least, most = self._limits.bounds[_ROLE]
        return FixedRole(_ROLE, tuple(views), least, most)

    def _shares(self, at: int, serving: int) -> dict[str, Floats]:
        """What each instance has: its own series where all have one, otherwise equal shares."""
        shared = {}
        for column in (WAITING, RUNNING, KV_USE):
            value = self._value(column, at)
            if value is None or not serving:
                continue
            rows = self._record.of_instances.get(column)
            own = np.empty(0) if rows is None else rows[:, at][np.isfinite(rows[:, at])]
            each = value if column == KV_USE else value / serving
            shared[column] = own if len(own) == serving else np.full(serving, each)
        return shared

    def _loads(self, at: int) -> dict[str, int]:
        serving, waiting, kv_use = (
            float(self._record.serving[at]), self._value(WAITING, at), self._value(KV_USE, at)
        )  # fmt: skip
        prompt, running = self._prompt_tokens, self._value(RUNNING, at)
        loads: dict[str, int] = {}
        if waiting is not None and prompt is not None:
            loads["backlog_tokens"] = round(waiting * prompt)
        if kv_use is not None:
            loads["kv_tokens"] = round(kv_use * serving * self._limits.kv_tokens)
        if waiting is not None:
            loads["has_work"] = waiting + (running or 0) > 0
        return loads

    def _signals_at(self, at: int) -> Any:
        if self._signals[0] != at:
            self._signals = at, self._made(at)
        return self._signals[1]

    def _made(self, at: int) -> Known:
        """The metrics of an instant, as ``serving.protocols.signals.Signals`` has them."""
        end_s = float(self._since_s[at])
        first = int(np.searchsorted(self._since_s, end_s - self._window_s, side="right"))
        # A rate is that of the time before its instant: so much of the window is recorded.
        window_s = min(self._window_s, end_s) or self._record.step_s
        span = slice(min(first, at), at + 1)
        instances, role = self._instances(at), self._role(at)
        mean = self._means(span)
        starting = [StartingSignals(one.id, _ROLE, 0, None) for one in role.in_state("loading")]
        known: dict[str, Any] = {
            "scraped_ns": round(end_s * NS_PER_S), "window_ns": round(window_s * NS_PER_S),
            "queued": 0, "queued_tokens": 0,
            "prefix_hit_share": self._hits if (hits := self._value(HITS, at)) is None else hits,
            "instances": tuple(instances), "starting": tuple(starting), "means": (mean,),
            "measured": self._measured(span, window_s), "of_role": lambda _: list(instances),
            "mean_of": lambda _: mean,
        }  # fmt: skip
        known |= self._rates(span, window_s)
        lacking = {
            "requests": (1, REQUESTS), "requests_per_s": (1.0, REQUESTS), "prompt_tokens": (1, PROMPT),
            "prompt_tokens_per_s": (1.0, PROMPT), "output_tokens_per_s": (1.0, OUTPUT),
            "mean_prompt_tokens": (1.0, PROMPT if PROMPT not in self._record.columns else REQUESTS),
            "mean_output_tokens": (1.0, OUTPUT if OUTPUT not in self._record.columns else REQUESTS),
            "oldest_wait_s": (1.0, QUEUE_AGE),
        }  # fmt: skip
        return Known(self.missing, known, lacking)

    def _mean_of(self, column: str, span: slice) -> float | None:
        values = self._record.columns.get(column)
        known = np.empty(0) if values is None else values[span][np.isfinite(values[span])]
        return float(known.mean()) if len(known) else None

    def _rates(self, span: slice, window_s: float) -> dict[str, Any]:
        """Arrivals and tokens of the window; means of lengths where the record has both."""
        requests, prompt, output = (self._mean_of(name, span) for name in (REQUESTS, PROMPT, OUTPUT))
        finished = self._mean_of(FINISHED, span)
        finished = requests if finished is None else finished
        rates: dict[str, Any] = {}
        if requests is not None:
            rates |= {"requests": requests * window_s, "requests_per_s": requests}
        if prompt is not None:
            rates |= {"prompt_tokens": prompt * window_s, "prompt_tokens_per_s": prompt}
        if output is not None:
            rates["output_tokens_per_s"] = output
        if prompt is not None and requests is not None:
            rates["mean_prompt_tokens"] = prompt / requests if requests else None
        if output is not None and finished is not None:
            rates["mean_output_tokens"] = output / finished if finished else None
        return rates

    def _instances(self, at: int) -> list[Known]:
        serving = round(float(self._record.serving[at]))
        shared, prompt = self._shares(at, serving), self._prompt_tokens
        names = {WAITING: (1.0, WAITING), RUNNING: (1.0, RUNNING), KV_USE: (1.0, KV_USE)}
        made = []
        for number in range(serving):
            known: dict[str, Any] = {"id": number, "role": _ROLE, "ready_ns": 0}
            known |= {column: float(values[number]) for column, values in shared.items()}
            if WAITING in shared and prompt is not None:
                known |= dict.fromkeys(_PROMPTS, known[WAITING] * prompt)
            made.append(Known(self.missing, known, names | dict.fromkeys(_PROMPTS, (1.0, UNFINISHED))))
        return made

    def _means(self, span: slice) -> Known:
        """Means of the window, of all instances together."""
        known: dict[str, Any] = {"role": _ROLE, "instances": float(np.nanmean(self._record.serving[span]))}
        for column in (WAITING, RUNNING, KV_USE):
            if (mean := self._mean_of(column, span)) is not None:
                known[column] = mean
        prompt = self._prompt_tokens
        if WAITING in known and prompt is not None:
            known["prompt_tokens"] = known[WAITING] * prompt
        lacking = {column: (1.0, column) for column in (WAITING, RUNNING, KV_USE)}
        return Known(self.missing, known, lacking | {"prompt_tokens": (1.0, UNFINISHED)})

    def _measured(self, span: slice, window_s: float) -> Known:
        finished, output = self._mean_of(FINISHED, span), self._mean_of(OUTPUT, span)
        finished = self._mean_of(REQUESTS, span) if finished is None else finished
        prompt = self._mean_of(PROMPT, span)
        known: dict[str, Any] = {TTFT: self._latency(TTFT, span), TPOT: self._latency(TPOT, span)}
        for name, value in (("finished", finished), ("output_tokens", output), ("prompt_tokens", prompt)):
            if value is not None:
                known[name] = value * window_s
        lacking = {
            "finished": (1, FINISHED), "output_tokens": (1, OUTPUT), "prompt_tokens": (1, PROMPT),
            "lengths": ((), LENGTHS),
        }  # fmt: skip
        return Known(self.missing, known, lacking)

    def _latency(self, kind: str, span: slice) -> Known:
        """The newest values of the window; ``count`` is 0 where there are none."""
        names = {at: f"{kind}_{at}_ms" for at in STATISTICS}
        known: dict[str, Any] = {}
        for at, column in names.items():
            values = self._record.columns.get(column)
            if values is not None:
                newest = values[span][np.isfinite(values[span])][-1:]
                known[f"{at}_ns"] = round(float(newest[0]) * NS_PER_MS) if len(newest) else 0
        if known:
            known["count"] = int(any(known.values()))
        lacking: dict[str, tuple[Any, str]] = {f"{at}_ns": (1, column) for at, column in names.items()}
        return Known(self.missing, known, lacking | {"count": (1, f"{kind}_mean_ms")})
