"""A request without its true output length, which the control plane never receives."""

from serving.vocabulary.fact import fact


@fact
class Request:
    """One request. ``max_new_tokens`` is the client's cap, already resolved to a number (> 0).

    ``reserved_tokens``: the output that is counted in advance, also as a decode instance's memory; 0: the
    cap. It limits nothing.

    ``shared_prefix``: the parts of its prompt that equal another request's tokens, prompt or output, at the
    same positions: (request, end position), ends ascending, from position 0 on. ((5, 1024), (9, 1536)):
    tokens [0, 1024) are those of request 5, [1024, 1536) those of request 9, which itself began with 5's; the
    rest, and all that it generates, is its own. The request named is the first in the run in which that
    prefix occurs, so equal content has one name, whatever the size of a KV block.
    """

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
