"""Request fields that send a computed prompt's KV from one server to another by the engines' own connector.

vLLM (`kv_transfer_params`, NixlConnector; run against 0.32): the driver asks the server that prefills for one
token, gets back where the KV is, and passes that to the server that decodes. SGLang (`--disaggregation-mode`,
by its documentation): both get the same request at once, and meet in a room of the server that prefills.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from realexec.http.dialects import MISFIT, Dialect, Wish, token_ids
from realexec.http.probe import Server

# Asks a server to keep the KV for another server. Its answer then holds where the KV is.
KEEP: Final[Mapping[str, Any]] = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
_PARAMS: Final = "kv_transfer_params"
_ROOM_BITS: Final = 62


@dataclass(frozen=True, slots=True)
class Computed:
    """A prompt whose KV a server keeps. ``first``: the token that follows; ``fetch``: where its KV is."""

    prompt: tuple[int, ...] = ()
    first: tuple[int, ...] = ()
    fetch: Mapping[str, Any] = field(default_factory=dict)


def prefill_body(dialect: Dialect, wish: Wish) -> dict[str, Any]:
    """Return vLLM's body to prefill: one token, not streamed, since streams do not report where the KV is."""
    body = dialect.body(wish) | {"max_tokens": 1, "min_tokens": 1, "stream": False, _PARAMS: dict(KEEP)}
    body.pop("stream_options", None)
    return body


def computed(wish: Wish, answer: Mapping[str, Any]) -> Computed:
    """Decode the answer to such a request. Raises ValueError if it does not hold where the KV is."""
    where = answer.get(_PARAMS)
    if not isinstance(where, dict) or not where.get("do_remote_prefill"):
        raise ValueError("its answer has no kv_transfer_params")
    choices = answer.get("choices") or [{}]
    try:
        ids = token_ids(choices[0].get("token_ids") or [])
    except MISFIT as error:
        raise ValueError(f"its answer has fields of another kind: {error}") from None
    if len(ids) != 1:
        raise ValueError(f"its answer has {len(ids)} token ids, not one")
    return Computed(wish.prompt, ids, {_PARAMS: where})


def room(prefill: Server) -> dict[str, Any]:
    """Return SGLang's fields for the room in which the two servers meet for one request."""
    return {
        "bootstrap_host": prefill.address.host,
        "bootstrap_port": prefill.bootstrap_port,
        "bootstrap_room": secrets.randbits(_ROOM_BITS),
    }
