"""Matches simulated requests with measured ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from servetwin.compare.measured import MeasuredRun
from servetwin.compare.own_result import Result
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

BY_ID: Final = "request number"
BY_ARRIVAL: Final = "order of arrival"
BY_PLACE: Final = "order in the file"
BY_LENGTHS: Final = "lengths of prompt and output, the file being in another order"
# Chat templates and other tokenizers add a few tokens; above this share the prompts are different ones.
MOST_PROMPT_DIFFERENCE: Final = 0.1
_SPAN_WORTH_TELLING: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Rows of the simulated and of the measured columns with the same request, finished in both."""

    by: str
    simulated: Ints
    measured: Ints
    remarks: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.simulated)


def pairs_of(result: Result, measured: MeasuredRun) -> Pairs:
    """Match by request number if the file has them, otherwise by order. UserError if neither works."""
    if measured.request is not None:
        by, numbers = BY_ID, _check_numbers(result, measured, measured.request)
    else:
        by, numbers = _by_order(result, measured)
    answered = np.flatnonzero(~measured.failed)
    known = result.columns["request"].astype(np.int64)
    index = np.minimum(np.searchsorted(known, numbers[answered]), max(len(known) - 1, 0))
    both = known[index] == numbers[answered] if len(known) else np.zeros(len(answered), dtype=bool)
    simulated, rows = index[both], answered[both]
    if not both.any():
        raise UserError(
            f"no request finished both in {result.folder} and in {measured.path}: compare the same workload"
        )
    remarks = (*_prompts(result, measured, simulated, rows), *_spans(result, measured, simulated, rows))
    return Pairs(by=by, simulated=simulated, measured=rows, remarks=remarks)


def _check_numbers(result: Result, measured: MeasuredRun, numbers: Ints) -> Ints:
    """Check that every number occurs once and belongs to the run."""
    known, counts = np.unique(numbers, return_counts=True)
    if counts.max() > 1:
        raise UserError(
            f"{measured.path} has request {known[counts.argmax()]} twice: give every request one number"
        )
    if known[0] < 0 or known[-1] >= result.handed_over:
        wrong = known[0] if known[0] < 0 else known[-1]
        raise UserError(
            f"{measured.path} has a request {wrong} and {result.folder} has 0 to {result.handed_over - 1}: "
            "number requests as rows of the workload, from 0"
        )
    return numbers


def _by_order(result: Result, measured: MeasuredRun) -> tuple[str, Ints]:
    """Match by order: the workload's rows are in order of arrival, so the n-th to arrive is number n."""
    if len(measured) != result.handed_over:
        raise UserError(
            f"{measured.path} has {len(measured)} requests without numbers and {result.folder} "
            f"{result.handed_over}, so their order does not tell which is which: simulate the same requests, "
            "or write a CSV with a column request, their rows in the workload"
        )
    if np.isnan(measured.arrival_s).any():
        by_lengths = _by_lengths(result, measured)
        return (BY_PLACE, np.arange(len(measured))) if by_lengths is None else (BY_LENGTHS, by_lengths)
    numbers = np.empty(len(measured), dtype=np.int64)
    numbers[np.argsort(measured.arrival_s, kind="stable")] = np.arange(len(measured))
    return BY_ARRIVAL, numbers


def _by_lengths(result: Result, measured: MeasuredRun) -> Ints | None:
    """Match a file in another order by lengths; None if it is in order, or has other lengths.

    Some clients write requests as they finish. Requests of the same lengths stay in order.
    """
    ours = [result.columns[name].astype(np.int64) for name in ("output_tokens", "prompt_tokens")]
    theirs = [measured.output_tokens, measured.prompt_tokens]
    if len(ours[0]) != len(measured) or all(map(np.array_equal, ours, theirs)):
        return None
    order, their_order = np.lexsort(ours), np.lexsort(theirs)
    if not all(np.array_equal(a[order], b[their_order]) for a, b in zip(ours, theirs, strict=True)):
        return None
    numbers = np.empty(len(measured), dtype=np.int64)
    numbers[their_order] = result.columns["request"].astype(np.int64)[order]
    return numbers


def _prompts(result: Result, measured: MeasuredRun, rows: Ints, measured_rows: Ints) -> list[str]:
    """Compare the lengths, which show whether the workloads are the same."""
    remarks = []
    for name, noun in (("prompt_tokens", "prompts"), ("output_tokens", "outputs")):
        ours = result.columns[name][rows].astype(np.int64)
        theirs = getattr(measured, name)[measured_rows]
        ours, theirs = ours[theirs >= 0], theirs[theirs >= 0]
        if not len(ours):
            remarks.append(f"lengths of {noun} are not in the file, so they were not compared")
            continue
        share = float(np.abs(ours - theirs).sum() / max(1, theirs.sum()))
        if noun == "prompts" and share > MOST_PROMPT_DIFFERENCE:
            raise UserError(
                f"the prompts of {measured.path} differ from those of {result.folder} by {share:.0%} of the "
                "tokens: simulate the same workload, or write a column request with the rows of the workload"
            )
        if share:
            differ = int((ours != theirs).sum())
            remarks.append(
                f"{differ:,} of {len(ours):,} {noun} have other lengths, {share:.2%} of all tokens"
            )
    return remarks


def _spans(result: Result, measured: MeasuredRun, rows: Ints, measured_rows: Ints) -> list[str]:
    """Compare the arrival rates of both sides."""
    if len(rows) < 2 or np.isnan(measured.arrival_s[measured_rows]).any():
        return []
    ours = float(np.ptp(result.columns["arrival_ns"][rows].astype(np.int64))) / 1e9
    theirs = float(np.ptp(measured.arrival_s[measured_rows]))
    if abs(ours - theirs) <= _SPAN_WORTH_TELLING * max(ours, theirs):
        return []
    return [
        f"the matched requests arrive within {ours:.1f} s in {result.folder} and {theirs:.1f} s in the file"
    ]
