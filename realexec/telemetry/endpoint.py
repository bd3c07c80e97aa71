"""An HTTP server for the metrics of a run: /metrics on a port of 127.0.0.1, while the run lasts."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final

from serving.vocabulary.errors import UserError

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


class Endpoint:
    """Use as a context manager. ``port`` 0: any free port, which ``url`` then contains."""

    def __init__(self, port: int, text: Callable[[], str]) -> None:
        """``text``: called by other threads. Raises UserError if the port is in use."""

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = text().encode() if self.path == "/metrics" else b""
                self.send_response(200 if self.path in ("/metrics", "/health") else 404)
                self.send_header("Content-Type", TEXT)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: a run has its own log."""

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError as error:
            raise UserError(f"metrics.port={port} cannot be opened ({error}): write another") from None
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """The URL of the metrics."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/metrics"

    def __enter__(self) -> "Endpoint":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
