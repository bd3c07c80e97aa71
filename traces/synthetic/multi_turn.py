"""Conversations: sessions of several turns, each prompt the conversation so far and something new.

Turns and tokens as vLLM's own multi-turn benchmark declares them (github.com/vllm-project/vllm, Apache-2.0,
benchmarks/multi_turn/generate_multi_turn.json and bench_dataset.py): 12 to 18 messages of user and assistant,
uniform and rounded up to pairs; 500 tokens common to all conversations; a beginning of its own for each,
log-normal with mean 1,000 and median 850, at most 5,000 tokens; 120 to 160 tokens in a user's message and 80
to 120 in an answer, uniform. The benchmark sends a next turn at once; think times, the seconds that an answer
is taken to last and the rate of conversations are ours.

Arrivals are open-loop, drawn beforehand: a next turn comes a think time after the answer before it would have
ended at ``token_ms`` per token, whether the system has answered by then or not.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import number_within, positive_number, whole_number
from traces.columns import Names
from traces.streams import stream
from traces.synthetic.arrivals import LONGEST_S, poisson_ns
from traces.synthetic.drawn import DEFAULT_REQUESTS, count_of, recipe
from traces.turns import Turns
from traces.workload import MAX_TOKENS, NS_PER_S, OPEN_LOOP, Workload

NAME: Final = "multi_turn"
USER_TOKENS: Final = (120, 160)
ANSWER_TOKENS: Final = (80, 120)
BEGIN_MEDIAN_RATIO: Final = 0.85
BEGIN_MOST_TOKENS: Final = 5000
_MOST_MESSAGES: Final = 2000
_LABEL: Final = "synthetic: conversations with turns and tokens of vLLM's multi-turn benchmark"
_ARRIVALS: Final = (
    OPEN_LOOP + "a next turn arrives its think time after the answer at {:g} ms per token, whenever that ends"
)
Ints = NDArray[np.int64]


def multi_turn(
    seed: int = 0,
    requests: int = DEFAULT_REQUESTS,
    rate_per_s: float = 1.0,
    *,
    least_messages: int = 12,
    most_messages: int = 18,
    think_s: float = 30.0,
    token_ms: float = 20.0,
    common_tokens: int = 500,
    begin_tokens: float = 1000.0,
) -> Workload:
    """Conversations that begin as a Poisson process; ``rate_per_s`` counts requests, once it has levelled.

    The rate rises to it while the first conversations last. think_s: mean of exponential think times.
    common_tokens: of a system prompt. begin_tokens: mean of each conversation's own beginning. The first
    ``requests`` requests by arrival are kept. Raises TraceError on values out of range.
    """
    count = count_of(requests)
    least = whole_number("least_messages", least_messages, 1, _MOST_MESSAGES)
    most = whole_number("most_messages", most_messages, least, _MOST_MESSAGES)
    common = whole_number("common_tokens", common_tokens, 0, MAX_TOKENS // 10)
    begin = number_within("begin_tokens", begin_tokens, 1, BEGIN_MOST_TOKENS)
    mean_turns = sum(-(-messages // 2) for messages in range(least, most + 1)) / (most - least + 1)
    session_per_s = positive_number("rate_per_s", rate_per_s) / mean_turns
    think = number_within("think_s", think_s, 0, LONGEST_S / _MOST_MESSAGES)
    token_ns = number_within("token_ms", token_ms, 0, 1e6) * 1e6
    sessions = max(16, math.ceil(count / mean_turns))
    while True:  # until the first conversation that is not drawn begins after the last request that is kept
        start_ns = poisson_ns(seed, f"{NAME}/sessions", sessions, session_per_s)
        messages = stream(seed, f"{NAME}/messages").integers(least, most + 1, sessions)
        first_tokens = common + _beginnings(seed, sessions, begin)
        session, arrival_ns, prompt, answer = _turns(
            seed,
            start_ns=start_ns,
            turns=-(-messages // 2),
            first_tokens=first_tokens,
            token_ns=token_ns,
            think_s=think,
        )
        order = np.argsort(arrival_ns, kind="stable")[:count]
        if sessions > count or arrival_ns[order[-1]] < start_ns[-1]:
            break
        sessions *= 2
    parameters = {
        "requests": count, "rate_per_s": rate_per_s, "least_messages": least, "most_messages": most,
        "think_s": think_s, "token_ms": token_ms, "common_tokens": common, "begin_tokens": begin_tokens,
    }  # fmt: skip
    return Workload(
        arrival_ns=arrival_ns[order],
        prompt_tokens=prompt[order],
        output_tokens=answer[order],
        name=NAME,
        source=recipe(NAME, seed, parameters),
        session=Names.of(f"s{at}" for at in session[order].tolist()),
        prefix=Turns(session[order], common),
        labels=(_LABEL, _ARRIVALS.format(token_ms)),
        rows_read=count,
    )


def _beginnings(seed: int, sessions: int, mean: float) -> Ints:
    """Tokens of each conversation's own beginning."""
    sigma = math.sqrt(-2.0 * math.log(BEGIN_MEDIAN_RATIO))
    normal = stream(seed, f"{NAME}/begin_tokens").standard_normal(sessions)
    tokens = mean * BEGIN_MEDIAN_RATIO * np.exp(sigma * normal)
    return np.minimum(np.rint(tokens), BEGIN_MOST_TOKENS).astype(np.int64)


def _turns(
    seed: int, *, start_ns: Ints, turns: Ints, first_tokens: Ints, token_ns: float, think_s: float
) -> tuple[Ints, Ints, Ints, Ints]:
    """(session, arrival in ns, prompt tokens, answer tokens) of every turn, session by session."""
    session = np.repeat(np.arange(len(turns)), turns)
    rows, first = len(session), np.cumsum(turns) - turns
    user_tokens = stream(seed, f"{NAME}/user_tokens").integers(USER_TOKENS[0], USER_TOKENS[1] + 1, rows)
    user_tokens[first] += first_tokens
    answer = stream(seed, f"{NAME}/answer_tokens").integers(ANSWER_TOKENS[0], ANSWER_TOKENS[1] + 1, rows)
    thought_s = stream(seed, f"{NAME}/think").standard_exponential(rows) * think_s
    gap_ns = np.rint(answer * token_ns + thought_s * NS_PER_S).astype(np.int64)
    prompt = _sums(user_tokens + answer, first, turns) - answer
    arrival_ns = start_ns[session] + _sums(gap_ns, first, turns) - gap_ns
    return session, arrival_ns, prompt, answer


def _sums(values: Ints, first: Ints, turns: Ints) -> Ints:
    """Of each turn and those before it in its session."""
    sums = np.cumsum(values)
    before: Ints = sums[first] - values[first]
    return np.asarray(sums - np.repeat(before, turns), dtype=np.int64)
