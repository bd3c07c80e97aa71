"""A request without its true output length, which the control plane never receives."""

from serving.vocabulary.fact import fact


@fact
class Request:
    """One request.

    ``arrival_ns``: when it came. ``prompt_tokens``: length of its prompt. ``max_new_tokens``: the cap of its
    output, always a number above 0. ``reserved_tokens``: the output that is counted in advance, also as a
    decode instance's memory; 0: the cap. It limits nothing. ``shared_prefix``: the parts of its prompt that
    equal another request's tokens at the same positions, as (request, end position) from position 0 on: ((5,
    1024), (9, 1536)) means tokens [0, 1024) of request 5 and [1024, 1536) of request 9.
    """

    # shared_prefix names the first request of the run with that prefix, so equal content has one name.

    id: int
    arrival_ns: int
    prompt_tokens: int
    max_new_tokens: int
    model: str
    priority: int = 0
    reserved_tokens: int = 0
    shared_prefix: tuple[tuple[int, int], ...] = ()


def demand_tokens(request: Request) -> int:
    """KV tokens that a request is counted with before its output is known: prompt and expected output."""
    return request.prompt_tokens + (request.reserved_tokens or request.max_new_tokens)
