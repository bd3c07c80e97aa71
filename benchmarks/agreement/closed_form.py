"""One request at a time, first come first served: Lindley's recursion over service times that are sums."""

import numpy as np

from benchmarks.agreement.runs import NS_PER_S, OurRun, RequestTimes
from hwmodels.step_times.rows import FIXED_PER_S, StepRows


def one_at_a_time(run: OurRun) -> RequestTimes:
    """First come, first served, one request at a time; a prompt is one step, which gives a token."""
    first, finish, free_s = list[float](), list[float](), 0.0
    for job in run.jobs:
        begin_s = max(job.arrival_ns / NS_PER_S, free_s)
        first.append(begin_s + run.rows.mixed(0, 0, ((0, 0, job.prompt_tokens),)) / FIXED_PER_S)
        free_s = first[-1] + decode_s(run.rows, job.prompt_tokens, job.output_tokens - 1)
        finish.append(free_s)
    return RequestTimes(np.array(first), np.array(finish))


def decode_s(rows: StepRows, prompt_tokens: int, steps: int) -> float:
    """So many steps of one sequence: an arithmetic series over each straight piece of the step times."""
    total, done = 0, 0
    for limit, intercept, slope in rows.decode(1):
        context = prompt_tokens + 1 + done
        count = min(steps - done, limit - context + 1)
        if count > 0:
            total += count * intercept + slope * (count * context + count * (count - 1) // 2)
            done += count
    assert done == steps, "a context beyond the last piece"
    return total / FIXED_PER_S
