"""Expert times fitted as two lines: reading the activated experts, or computing all tokens."""

from dataclasses import dataclass

import numpy as np

from hwmodels.profiles.profile import ExpertTable, Floats
from hwmodels.step_times.fit import Line, fit_largest, largest_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLines:
    """The larger of two lines over tokens of all ranks and activated experts of one; seconds of a step.

    ``expert_tp`` and ``expert_ep`` as in ``ExpertTable``; ``last_tokens``: the most that were measured.
    """

    expert_tp: int
    expert_ep: int
    last_tokens: int
    reading_s: float
    per_expert_s: float
    per_token_s: float
    computing_s: float
    computing_per_token_s: float

    def seconds(self, tokens: Floats, activated: Floats) -> Floats:
        """Seconds at each pair."""
        reading = self.reading_s + self.per_expert_s * activated + self.per_token_s * tokens
        found: Floats = np.maximum(reading, self.computing_s + self.computing_per_token_s * tokens)
        return found


def fit_expert_lines(table: ExpertTable) -> ExpertLines:
    """Fit through the most activated experts at every number of tokens; errors relative."""
    axes, values = table.lattice.axes, table.lattice.values
    most = [int(np.flatnonzero(~np.isnan(row))[-1]) for row in values]
    tokens = np.array(axes[0], dtype=np.float64)
    experts = np.array(axes[1], dtype=np.float64)[most]
    seconds = values[np.arange(len(values)), most]
    none, ones = np.zeros(len(tokens)), np.ones(len(tokens))
    lines = (
        Line(np.stack([ones, experts, tokens, none, none], axis=1), none),
        Line(np.stack([none, none, none, ones, tokens], axis=1), none),
    )
    slope = float(seconds[-1] / tokens[-1])
    start, reading = float(seconds.min()), float((seconds / experts).min())
    starts = [
        np.array([start, share * reading, part * slope, start, (1.0 - part) * slope])
        for share in (0.5, 0.9)
        for part in (0.2, 0.5)
    ]
    parameters = fit_largest(lines, seconds, seconds, starts)
    # A line that is never the larger one is undetermined: it is left at 0.
    if (largest_s(lines[:1], parameters) >= largest_s(lines[1:], parameters)).all():
        parameters[3:] = 0.0
    reading_s, per_expert_s, per_token_s, computing_s, computing_per_token_s = map(float, parameters)
    return ExpertLines(
        expert_tp=table.expert_tp,
        expert_ep=table.expert_ep,
        last_tokens=int(tokens[-1]),
        reading_s=reading_s,
        per_expert_s=per_expert_s,
        per_token_s=per_token_s,
        computing_s=computing_s,
        computing_per_token_s=computing_per_token_s,
    )
