"""A made-up server that states when each token comes: it sets the clock, sends, and waits for a reader.

What a client says of its tokens' times is then exactly what was stated, however busy the machine is.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.worlds.processes import patience_s

MODEL = "stated"
PIECE = b'data: {"choices":[{"text":"x"}]}\n\n'


class StatedClock:
    """In place of ``time.monotonic_ns``; ``ns`` is whatever was stated last."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


class StatedServer:
    """``stated``: by a prompt's length, when its tokens come, in ns. Use as a context manager."""

    def __init__(self, clock: StatedClock, stated: Mapping[int, Sequence[int]]) -> None:
        self.clock, self.stated = clock, stated
        self._waiting: dict[int, Any] = {}
        self._all_here, self._read = threading.Condition(), threading.Semaphore(0)
        self._told = {prompt: threading.Event() for prompt in stated}
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner._get(self)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                owner._complete(self, len(body["prompt"]), body["max_tokens"])

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> "StatedServer":
        for work in (self._http.serve_forever, self._state):
            threading.Thread(target=work, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def read(self, *_: object) -> None:
        """A client says that it has read the token that came last."""
        self._read.release()

    def _get(self, handler: Any) -> None:
        there = handler.path == "/v1/models"
        text = json.dumps({"data": [{"id": MODEL, "max_model_len": 4096}]} if there else {}).encode()
        handler.send_response(200 if there else 404)
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)

    def _complete(self, handler: Any, prompt: int, tokens: int) -> None:
        handler.send_response(200)
        handler.end_headers()
        if prompt not in self.stated:  # a probe
            handler.wfile.write(PIECE * tokens + b"data: [DONE]\n\n")
            return
        assert tokens == len(self.stated[prompt])
        with self._all_here:
            self._waiting[prompt] = handler.wfile
            self._all_here.notify_all()
        assert self._told[prompt].wait(patience_s())

    def _state(self) -> None:
        """When all requests are here, send token after token in the order of the stated times."""
        with self._all_here:
            self._all_here.wait_for(lambda: len(self._waiting) == len(self.stated))
        for at_ns, prompt in sorted((at, prompt) for prompt, ats in self.stated.items() for at in ats):
            self.clock.ns = at_ns
            self._waiting[prompt].write(PIECE)
            assert self._read.acquire(timeout=patience_s()), "nobody read the token"
            if at_ns == self.stated[prompt][-1]:
                self._waiting[prompt].write(b"data: [DONE]\n\n")
                self._told[prompt].set()
