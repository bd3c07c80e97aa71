"""One prefill and one decode worker under the rules of simdistserve, written anew: loops over steps, floats.

The rules (LLMServe/DistServe on GitHub, simdistserve/base/worker.py and request.py): prompts are batched
whole, first come first served, up to a limit of tokens; what is computed joins the decode queue at once; a
decode step takes the whole batch. Where simdistserve has a bug the intended rule is used
(``FAULTS``). simdistserve itself is no package that could be installed and is not run.
"""

from collections import deque
from typing import Final

import numpy as np

from benchmarks.agreement.runs import NS_PER_S, Job, OurRun, RequestTimes, step_s
from hwmodels.step_times.rows import StepRows

FAULTS: Final = (
    (
        "request.py, Request.should_finish: counter >= output_lens",
        "the prompt's pass leaves counter at 0, so that its token is not counted and every request decodes "
        "one step too many; here it is counted",
    ),
    (
        "worker.py, Worker._enter_decodes: min(remaining_tok_in_batch, len(decode_queue))",
        "decode_max_batch_size is read nowhere; a step takes decode_max_tokens requests from the head of the "
        "queue and puts them behind the others, who take turns with them; here who has a seat keeps it",
    ),
    (
        "worker.py, Worker._enter_prefill: if sched_size > prefill_max_tokens: break",
        "a longer prompt is never taken, and the worker runs empty batches for ever; here it runs alone",
    ),
    (
        "worker.py, Worker._enter_prefill: prefill_max_tokens - chunk_size",
        "of chunks, the limit has been reduced by what is chosen already, so that it counts twice; here "
        "prompts are whole",
    ),
)


def one_prefill_one_decode(run: OurRun, seat_first: bool = False) -> RequestTimes:
    """Prefill needs nothing of decode, so that it is computed first; KV moves in no time.

    ``seat_first``: KV moves once a decode slot is free, as in ServeTwin. Slots become free at the end of a
    step; KV that starts to move then arrives after the next step has begun, and decodes from the one after.
    """
    engine = run.prepared.config.engine
    first = _prefill(run.rows, run.jobs, engine.max_num_batched_tokens)
    finish = _decode(run.rows, run.jobs, first, engine.max_num_seqs, seat_first)
    return RequestTimes(np.array(first), np.array(finish))


def _prefill(rows: StepRows, jobs: tuple[Job, ...], most_tokens: int) -> list[float]:
    """When each prompt is computed."""
    done, now_s, position = [0.0] * len(jobs), 0.0, 0
    while position < len(jobs):
        now_s = max(now_s, jobs[position].arrival_ns / NS_PER_S)
        batch, tokens = list[int](), 0
        while position < len(jobs) and jobs[position].arrival_ns / NS_PER_S <= now_s:
            tokens += jobs[position].prompt_tokens
            if batch and tokens > most_tokens:
                break
            batch.append(position)
            position += 1
        now_s += step_s(rows, (), [(request, 0, jobs[request].prompt_tokens) for request in batch])
        for request in batch:
            done[request] = now_s
    return done


def _decode(
    rows: StepRows, jobs: tuple[Job, ...], first_s: list[float], seats: int, seat_first: bool
) -> list[float]:
    """When each request has its last token: a step is one token for every request admitted when it begins."""
    finish = list(first_s)
    order = sorted(range(len(jobs)), key=lambda request: (first_s[request], request))
    to_come = deque(request for request in order if jobs[request].output_tokens > 1)
    batch: dict[int, int] = {}  # request -> context of its next step
    coming: list[int] = []  # they have seats from the next step on
    ended: list[int] = []
    now_s = 0.0
    while batch or to_come or coming:
        if not (batch or coming):
            now_s = max(now_s, first_s[to_come[0]])
        taken = len(batch) + (len(ended) if seat_first else 0)
        ended = []
        while to_come and first_s[to_come[0]] <= now_s and taken + len(coming) < seats:
            coming.append(to_come.popleft())
        for request in coming:
            batch[request] = jobs[request].prompt_tokens + 1
        coming = []
        while to_come and first_s[to_come[0]] <= now_s and len(batch) + len(coming) < seats:
            coming.append(to_come.popleft())  # into seats that were left just now
        now_s += step_s(rows, list(batch.values()))
        for request in list(batch):
            batch[request] += 1
            if batch[request] == jobs[request].prompt_tokens + jobs[request].output_tokens:
                finish[request] = now_s
                ended.append(request)
                del batch[request]
    return finish
