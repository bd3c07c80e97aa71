"""A request as the control plane sees it: everything but the true output length, which only a world knows."""

from serving.vocabulary.fact import fact


@fact
class Request:
    """One request. ``max_new_tokens`` is the client's cap, already resolved to a number (> 0).

    ``reserved_tokens``: the output that a decode instance keeps memory for; 0: the cap.
    """

    id: int
    arrival_ns: int
    prompt_tokens: int
    max_new_tokens: int
    model: str
    priority: int = 0
    reserved_tokens: int = 0
