"""One file over http or https from a given byte on; each failure is an error of one sentence.

Proxies are those of the environment, as urllib takes them. Redirects are followed to http and
https only.
"""

import re
import ssl
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage, HTTPResponse, InvalidURL
from socket import gaierror
from typing import IO, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from traces.errors import TraceError

TIMEOUT_S: Final = 60.0
"""Longest silence of a server, while connecting and between any two pieces."""
_SCHEMES: Final = ("http", "https")
_CONTENT_RANGE: Final = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII)
_DIGITS: Final = re.compile(r"\d{1,18}", re.ASCII)
_ADVICE: Final = {
    HTTPStatus.UNAUTHORIZED: "the file is not public there, so give another url",
    HTTPStatus.FORBIDDEN: "the file is not public there, or a proxy is in the way: give another url",
    HTTPStatus.NOT_FOUND: "the file does not exist there (any more): give another url",
    HTTPStatus.GONE: "the file does not exist there any more: give another url",
    HTTPStatus.PROXY_AUTHENTICATION_REQUIRED: "write the user name and password into the proxy's address",
    HTTPStatus.TOO_MANY_REQUESTS: "wait some minutes and run the same command again",
}
_REASONS: Final[tuple[tuple[tuple[type[Exception], ...], str], ...]] = (
    ((gaierror,), "the host's name is not known: check the url and the network"),
    ((ConnectionRefusedError,), "the host refuses the connection: check the url, or try again later"),
    ((ConnectionError,), "the host closes the connection: try again later"),
    (
        (ssl.SSLError,),
        "its certificate or encryption is not accepted: check the url, the clock and the proxy",
    ),
    ((TimeoutError,), "the host did not answer in time: check the network, or try again later"),
    ((ValueError, InvalidURL), "the url is not well formed: write it like https://example.org/file.csv"),
    ((HTTPException,), "the host does not send valid HTTP: check the url and the proxy"),
)
"""The first that fits: some errors are of several kinds (a refused certificate is a ValueError, too)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server sends. first_byte: place in the file of the first byte read, None when the server has
    no such place. total_bytes: size of the whole file, None when it does not say. has_end: the server marks
    the end, so that an end is no cut. read: up to so many bytes, as soon as there are any; b"" at the end;
    OSError or HTTPException when the connection fails. close: to be called in the end.
    """

    first_byte: int | None
    total_bytes: int | None
    has_end: bool
    read: Callable[[int], bytes]
    close: Callable[[], None]


def open_url(url: str, first_byte: int) -> Answer:
    """Ask for ``url`` from ``first_byte`` on; the answer may begin elsewhere.

    Raises TraceError in one sentence when there is no answer that could be the file.
    """
    _check_url(url)
    headers = {"User-Agent": "servetwin", "Accept-Encoding": "identity"}
    if first_byte:
        headers["Range"] = f"bytes={first_byte}-"
    try:
        request = urllib.request.Request(url, headers=headers)
        response = _opener().open(request, timeout=TIMEOUT_S)
    except HTTPError as error:
        error.close()
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and first_byte:
            return Answer(None, None, True, lambda _: b"", lambda: None)
        raise TraceError(f"{url} answers {error.code}: {_advice(error.code)}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise TraceError(f"{url} cannot be fetched: {why(error)}") from error
    return _answer(url, response)


def why(error: Exception) -> str:
    """Problem and remedy of a failed connection, as the end of a sentence."""
    cause = error.reason if isinstance(error, URLError) else error
    for kinds, text in _REASONS:
        if isinstance(cause, kinds):
            return text
    reason = " ".join(str(getattr(cause, "strerror", None) or cause).split())
    return f"the connection fails ({reason}): check the network, or try again later"


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        sound = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
        sound = sound and parts.username is None and url.isascii() and url.isprintable() and " " not in url
    except ValueError:
        sound = False
    if not sound:
        raise TraceError(
            f"url={url!r} is not an http or https address: write for example https://example.org/f.csv"
        )


class _WebRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """As urllib does, but never to ftp, which it would follow."""
        if urlsplit(newurl).scheme not in _SCHEMES:
            raise HTTPError(req.full_url, code, msg, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """urllib's usual opener without file, ftp and data addresses."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        _WebRedirects(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def _advice(code: int) -> str:
    if 300 <= code < 400:
        return "it redirects in a loop, or to an address that is neither http nor https: give another url"
    if code >= 500:
        return "the server reports an error: try again later, or give another url"
    with suppress(ValueError):
        return _ADVICE.get(HTTPStatus(code), "give another url")
    return "give another url"


def _answer(url: str, response: Any) -> Answer:
    assert isinstance(response, HTTPResponse)
    problem = _problem(response)
    if problem:
        response.close()
        raise TraceError(f"{url} {problem}: give another url")
    has_end = bool(getattr(response, "chunked", False))
    # A Content-Length beside chunks is to be ignored (RFC 9112, section 6.3).
    first, total = 0, None if has_end else _number(response.headers.get("Content-Length"))
    part = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    if part is not None and response.status == HTTPStatus.PARTIAL_CONTENT:
        first, total = int(part[1]), _number(part[3])
    return Answer(first, total, has_end, response.read1, response.close)


def _problem(response: HTTPResponse) -> str | None:
    """Why the answer cannot be taken, or None."""
    if response.status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
        return f"answers {response.status} instead of a file"
    coding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        return f"sends the file compressed ({coding[:20]!r}) although the request asks for it uncompressed"
    if response.status == HTTPStatus.PARTIAL_CONTENT:
        text = response.headers.get("Content-Range", "").strip()
        if not _CONTENT_RANGE.fullmatch(text):
            return f"sends a part of the file without saying which ({text[:40]!r})"
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text and _DIGITS.fullmatch(text.strip()) else None
