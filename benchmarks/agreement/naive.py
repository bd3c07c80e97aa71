"""The reference engine of the tests: every block an object, every token a step, no code of the product."""

import numpy as np

from benchmarks.agreement.runs import NS_PER_S, OurRun, RequestTimes


def naive(run: OurRun) -> RequestTimes:
    """One replica under the same scheduler, as the reference engine computes it."""
    from tests.worlds.naive_engine import Case, run_naive

    engine, replica = run.prepared.config.engine, run.prepared.replicas[0]
    case = Case(
        batcher="chunked" if engine.batcher == "chunked_prefill" else engine.batcher,
        replicas=len(run.prepared.replicas),
        block_tokens=replica.block_tokens,
        total_blocks=replica.kv_blocks,
        watermark_blocks=replica.watermark_blocks,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        dispatch="least_outstanding",
        requests=tuple((job.arrival_ns, job.prompt_tokens, job.output_tokens, job.cap) for job in run.jobs),
        rows=run.rows,
        reserve_full_prompt=engine.reserve_full_prompt,
        prefix_caching=engine.prefix_caching,
        asynchronous=engine.asynchronous,
        decode_spare_block=engine.decode_spare_block,
    )
    outcomes = run_naive(case)
    first = np.array([outcome.token_ns[0] for outcome in outcomes]) / NS_PER_S
    return RequestTimes(first, np.array([outcome.token_ns[-1] for outcome in outcomes]) / NS_PER_S)
