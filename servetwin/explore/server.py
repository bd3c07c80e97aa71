"""The page's server: on this machine's loopback alone, behind a token that its address contains."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shlex import join
from string import Template
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from servetwin.explore.controls import Control, controls, state_of
from servetwin.explore.runs import Runs
from servetwin.explore.view import view
from servetwin.report.page_parts import page_file
from serving.vocabulary.errors import UserError

LOOPBACK: Final = "127.0.0.1"
_PAGES: Final = Path(__file__).parent / "pages"
_POLICY: Final = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; connect-src 'self'; "
    "form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
_FILES: Final = {"explore.js": "text/javascript; charset=utf-8", "explore.css": "text/css; charset=utf-8"}
_HTML: Final = "text/html; charset=utf-8"
_LONGEST_BODY: Final = 10_000


class Explorer:
    """Answers what the page asks for. ``first``: values that the command line gave to controls."""

    def __init__(self, runs: Runs, first: Mapping[str, str]) -> None:
        self._runs = runs
        self._first = state_of(first)

    def page(self) -> str:
        """Return the page with its controls."""
        fields = "".join(_field(control, self._first.values[control.name]) for control in controls())
        return Template((_PAGES / "explore.html").read_text("utf-8")).substitute(fields=fields)

    def answer(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Simulate a state: ``how`` it ended, the command of the same run, and what to show of it."""
        try:
            state = state_of({**self._first.values, **given})
            words = state.words()
        except UserError as error:
            return {"how": "refused", "text": str(error)}
        number, ended = self._runs.simulate(words)
        answered = {**asdict(ended), "number": number, "command": join(["servetwin", "simulate", *words])}
        folder = self._runs.folder_of(number)
        return {**answered, **view(folder, state.price)} if folder is not None else answered

    def report(self, number: str) -> str | None:
        """Return the report of a run; None for a run that is not kept."""
        folder = self._runs.folder_of(int(number)) if number.isdecimal() else None
        return (folder / "report.html").read_text("utf-8") if folder is not None else None


def _field(control: Control, value: str) -> str:
    """Return a control as HTML: its label, the field, and a hint below it."""
    name, hint = control.name, escape(control.hint)
    described = f' aria-describedby="{name}-hint"' if hint else ""
    if control.choices:
        options = "".join(
            f'<option value="{one}"{" selected" if one == value else ""}>{escape(one or "its own")}</option>'
            for one in control.choices
        )
        field = f'<select id="{name}" name="{name}"{described}>{options}</select>'
    else:
        bounds = "" if control.low is None else f' inputmode="{"numeric" if control.whole else "decimal"}"'
        field = f'<input id="{name}" name="{name}" value="{escape(value)}"{bounds}{described}>'
    below = f'<small id="{name}-hint">{hint}</small>' if hint else ""
    return f'<p class="control"><label for="{name}">{escape(control.label)}</label>{field}{below}</p>'


class Server(ThreadingHTTPServer):
    """Listens on a port of the loopback; ``address`` is what to open."""

    daemon_threads = True

    def __init__(self, explorer: Explorer, port: int) -> None:
        """``port`` 0: any free one. OSError if it is taken."""
        self.explorer = explorer
        self.token = secrets.token_urlsafe(16)
        super().__init__((LOOPBACK, port), _Handler)

    @property
    def address(self) -> str:
        """The page's address with its token."""
        return f"http://{LOOPBACK}:{self.server_address[1]}/{self.token}/"

    def answers_to(self, host: str) -> bool:
        """Return whether a request was sent to this server by one of its own names.

        A page elsewhere whose name was made to lead here names itself (DNS rebinding).
        """
        return host in {f"{name}:{self.server_address[1]}" for name in (LOOPBACK, "localhost")}


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "servetwin"
    sys_version = ""

    def do_GET(self) -> None:
        """The page, its style and script, or a report."""
        rest = self._behind_token()
        if rest is None:
            return
        if rest == "":
            self._send(200, self.server.explorer.page(), _HTML, _POLICY)
        elif rest in _FILES:
            style = page_file("report.css") if rest == "explore.css" else ""
            self._send(200, style + (_PAGES / rest).read_text("utf-8"), _FILES[rest])
        elif rest.startswith("report/") and (text := self.server.explorer.report(rest[7:])) is not None:
            self._send(200, text, _HTML)
        else:
            self._send(404, "There is no such page: a report is kept for the latest states alone.\n")

    def do_POST(self) -> None:
        """Simulate the state whose values the body has, as a form."""
        if self._behind_token() != "run":
            self._send(404, "There is no such page.\n")
            return
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 <= length <= _LONGEST_BODY:
            self._send(413, "The form is too long.\n")
            return
        given = dict(parse_qsl(self.rfile.read(length).decode("utf-8", "replace"), keep_blank_values=True))
        answer = self.server.explorer.answer(given)
        self._send(200, json.dumps(answer), "application/json")

    def _behind_token(self) -> str | None:
        """Return the path behind the token; None after a refusal."""
        token, _, rest = urlsplit(self.path).path.removeprefix("/").partition("/")
        known = hmac.compare_digest(token.encode(), self.server.token.encode())
        if known and self.server.answers_to(self.headers.get("Host") or ""):
            return rest
        self._send(403, "Open the address that servetwin explore printed: it contains a token.\n")
        return None

    def _send(
        self, status: int, text: str, kind: str = "text/plain; charset=utf-8", policy: str = ""
    ) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            *([("Content-Security-Policy", policy)] if policy else []),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the address has the token."""


def serve(runs: Runs, first: Mapping[str, str], *, port: int, tell: Callable[[str], None]) -> None:
    """Answer until Ctrl-C. ``tell`` is given the address. UserError for a taken port."""
    explorer = Explorer(runs, first)
    try:
        server = Server(explorer, port)
    except OSError as error:
        raise UserError(
            f"port={port} cannot be used ({error.strerror}): write port=0 for a free one"
        ) from None
    with server:
        tell(server.address)
        try:
            server.serve_forever(poll_interval=0.2)
        finally:
            runs.stop()
