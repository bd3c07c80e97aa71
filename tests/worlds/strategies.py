"""Hypothesis strategies: small cases that reach the corners where schedulers and clocks disagree."""

from dataclasses import replace

from hypothesis import strategies as st

from tests.worlds.naive_engine import FRACTION_BITS, Case
from tests.worlds.toy_rows import ToyRows

NS = 1 << FRACTION_BITS  # 1 ns in fixed point
IDLE_GAP_NS = 10**12  # longer than any case can keep a replica busy
# The scale of a step: below 1 ns (steps that end where they start), a few ns (arrivals fall on boundaries by
# chance), and that of a GPU (ms, with sums beyond 2**53 so that a float on the way shows).
SUB_NS, FEW_NS, GPU_NS = 0, 5, 7_000_000


@st.composite
def toy_rows(draw: st.DrawFn, step_ns: int, whole: bool, constant: bool) -> ToyRows:
    """Rows whose steps take about ``step_ns``: ``fully_loaded`` ns or odd fractions, all alike if
    ``constant``.
    """
    if constant:
        # A step with chunks and decodes costs two of these: still on the grid of arrivals.
        return ToyRows(step_ns * NS, 0, 0, step_ns * NS, 0)

    def cost(least_ns: int, top_ns: int) -> int:
        if whole:
            return NS * draw(st.integers(least_ns, max(top_ns, 1)))
        value = draw(st.integers(least_ns * NS, max(top_ns * NS, NS // 4)))
        return value | 1

    knot = draw(st.none() | st.integers(1, 150))
    return ToyRows(
        intercept=cost(step_ns // 2, step_ns),
        per_sequence=cost(0, step_ns // 8),
        slope=cost(0, step_ns // 50),
        mixed_intercept=cost(step_ns // 2, 2 * step_ns),
        per_token=cost(0, step_ns // 10),
        per_pair=cost(0, step_ns // 100),
        knot_context=knot,
        knot_intercept=1 if knot is None else cost(step_ns // 2, step_ns),
        knot_slope=0 if knot is None else cost(0, step_ns // 20),
        skew_percent=draw(st.sampled_from((0, 0, 7, 40))),
        output_token=draw(st.sampled_from((0, 0, 1))) * cost(0, step_ns // 50),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any batcher and dispatcher over 1 to 12 requests on 1 to 3 replicas; half of the cases are crowded."""
    crowded = draw(st.booleans())
    step_ns = draw(st.sampled_from((SUB_NS, FEW_NS, FEW_NS, GPU_NS)))
    whole = step_ns != SUB_NS and draw(st.booleans())
    constant = whole and draw(st.booleans())
    rows = draw(toy_rows(step_ns, whole, constant))
    grid_ns = step_ns if constant else max(1, step_ns // draw(st.sampled_from((1, 1, 2, 3))))
    requests = draw(arriving_requests(grid_ns, max(1, step_ns), crowded))
    block_tokens = draw(st.sampled_from((1, 2, 3, 4, 16)))
    watermark_blocks = draw(st.integers(0, 3))
    max_num_seqs = draw(st.sampled_from((3, 4, 6, 8, 12) if crowded else (1, 2, 3, 4, 8)))
    batcher = draw(st.sampled_from(("chunked", "prefill_first")))
    chunked = batcher == "chunked"
    priorities = draw(st.sampled_from(((), (0, 1), (-1, 0, 3))))
    sequence_blocks = draw(st.sampled_from((0, 0, 0, 1, 3)))
    own_blocks = sequence_blocks * draw(st.integers(1, max_num_seqs))
    return Case(
        batcher=batcher,
        replicas=draw(st.sampled_from((1, 1, 1, 2) if crowded else (1, 2, 3))),
        block_tokens=block_tokens,
        total_blocks=watermark_blocks + own_blocks + draw(pools(requests, block_tokens, crowded)),
        watermark_blocks=watermark_blocks,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=draw(st.integers(max_num_seqs, max_num_seqs + 24)),
        dispatch=draw(st.sampled_from(("round_robin", "least_outstanding"))),
        requests=tuple(requests),
        rows=rows,
        reserve_full_prompt=chunked and draw(st.booleans()),
        # A decode that is preempted for a prompt in the same step may cost a cached block there.
        prefix_caching=draw(st.booleans()) and not (chunked and priorities),
        asynchronous=draw(st.booleans()),
        decode_spare_block=not chunked and draw(st.booleans()),
        sequence_blocks=sequence_blocks,
        priorities=tuple([draw(st.sampled_from(priorities)) for _ in requests] if priorities else ()),
    )


@st.composite
def swapping_cases(draw: st.DrawFn) -> Case:
    """Prefill first, in little memory; who is preempted finds some room in host memory, or none."""
    case = draw(cases().filter(lambda one: one.batcher == "prefill_first"))
    step_ns = max(1, case.rows.intercept >> FRACTION_BITS)  # type: ignore[attr-defined]
    return replace(
        case,
        prefix_caching=False,
        asynchronous=False,
        swap_blocks=draw(st.sampled_from((1, 3, 10, 1000))),
        swap_block_ns=draw(st.sampled_from((1, step_ns, 3 * step_ns))),
    )


@st.composite
def arriving_requests(
    draw: st.DrawFn, grid_ns: int, step_ns: int, crowded: bool
) -> list[tuple[int, int, int, int]]:
    """(arrival_ns, prompt, output, max_new_tokens), by arrival.

    Bursts, a grid of step boundaries, single ns or long silences; lengths alike or far apart. A crowd comes
    close together with short prompts and long outputs, so that it outgrows a small pool.
    """
    gap_kinds = [
        st.just(0),
        st.integers(0, 3).map(lambda n: n * grid_ns),
        st.integers(0, 2 * step_ns),
        st.sampled_from((0, 0, 0, grid_ns, IDLE_GAP_NS)),
        st.integers(0, 40 * step_ns),
    ]
    prompt_kinds = [st.integers(1, 4), st.integers(1, 12), st.integers(1, 40)]
    output_kinds = [st.integers(4, 30), st.integers(8, 120), st.integers(1, 3)]
    cap_kinds = [st.integers(6, 20), st.integers(10, 60), st.integers(1, 6)]
    kinds = 2 if crowded else 5
    gaps, prompts = draw(st.sampled_from(gap_kinds[:kinds])), draw(st.sampled_from(prompt_kinds[:kinds]))
    outputs, caps = draw(st.sampled_from(output_kinds[:kinds])), draw(st.sampled_from(cap_kinds[:kinds]))
    requests: list[tuple[int, int, int, int]] = []
    arrival_ns = draw(gaps)
    for _ in range(draw(st.sampled_from((3, 4, 5, 6, 8, 12) if crowded else (1, 2, 3, 4, 5, 7, 9)))):
        requests.append((arrival_ns, draw(prompts), draw(outputs), draw(caps)))
        arrival_ns += draw(gaps)
    return requests


@st.composite
def pools(
    draw: st.DrawFn, requests: list[tuple[int, int, int, int]], block_tokens: int, crowded: bool
) -> int:
    """Blocks beyond the watermark: about what the largest request needs, too few, or (no crowd) plenty."""
    sizes = [-(-(prompt + max_new_tokens) // block_tokens) for _, prompt, _, max_new_tokens in requests]
    largest = max(sizes)
    if crowded:
        kinds = [
            st.just(largest),
            st.integers(largest, largest + 2),
            st.sampled_from([size for size in sizes if 2 * size > largest]),
        ]
    else:
        kinds = [st.integers(largest, 2 * largest), st.sampled_from(sizes), st.just(sum(sizes))]
    return draw(st.one_of(kinds))
