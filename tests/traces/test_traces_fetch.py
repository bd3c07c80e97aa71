"""Fetching over a server of our own on 127.0.0.1: whole and right, or no file of that name."""

import errno
import fcntl
import hashlib
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import IncompleteRead
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds.refusals import refuses
from traces.errors import TraceError
from traces.fetching import fetch as fetch_download
from traces.fetching import fetch as fetch_part
from traces.fetching import http as fetch_http
from traces.fetching.fetch import fetch
from traces.fetching.http import Answer
from traces.fetching.sources import SOURCES, Source, terms

DATA = bytes(range(256)) * 1200
FILE = "trace.csv"


class Handler(BaseHTTPRequestHandler):
    """Hands every request to the site's present behaviour."""

    protocol_version = "HTTP/1.1"
    server: "Site"

    def do_GET(self) -> None:
        self.server.seen.append(dict(self.headers))
        self.close_connection = True
        with suppress(BrokenPipeError, ConnectionResetError):
            self.server.behave(self)

    def log_message(self, *_: Any) -> None:
        pass

    def head(self, status: int, **headers: Any) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    @property
    def first(self) -> int:
        return int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))

    def part(self, until: int = len(DATA), data: bytes = DATA) -> None:
        """What a good server sends, cut before byte ``until``."""
        first = self.first
        if "Range" in self.headers:
            span = f"bytes {first}-{len(data) - 1}/{len(data)}"
            self.head(206, Content_Length=len(data) - first, Content_Range=span)
        else:
            self.head(200, Content_Length=len(data))
        self.wfile.write(data[first:until])

    def chunks(self, data: bytes, *, end: bool = True, **headers: Any) -> None:
        self.head(200, Transfer_Encoding="chunked", **headers)
        for start in range(0, len(data), 51_200):  # a sixth of DATA: one chunk ends where it does
            piece = data[start : start + 51_200]
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        if end:
            self.wfile.write(b"0\r\n\r\n")


class Site(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[dict[str, str]] = []
        self.behave: Callable[[Handler], None] = Handler.part
        self.url = f"http://127.0.0.1:{self.server_port}/{FILE}"

    def ranges(self) -> list[str | None]:
        return [headers.get("Range") for headers in self.seen]


@pytest.fixture(autouse=True)
def only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name and no address but this machine's own is ever asked for, by a proxy neither."""
    real = socket.getaddrinfo

    def only_here(host: Any, *rest: Any, **more: Any) -> Any:
        assert host == "127.0.0.1", f"{host} is asked for"
        return real(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", only_here)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def source(site: Site | None = None, data: bytes = DATA, **changed: Any) -> Source:
    fields: dict[str, Any] = {
        "name": "toy",
        "file_name": FILE,
        "format": "azure",
        "url": site.url if site else None,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "hash_source": "the test",
        "licence": "CC-BY 4.0",
        "citation": "A. Author. A paper. 2024",
        "page": "https://example.org/page",
    }
    return Source(**(fields | changed))


def refused(wanted: Source, folder: Path, **options: Any) -> str:
    """The sentence; nothing of the final name is there afterwards."""
    sentence = refuses(TraceError, ": ", fetch, wanted, folder, **options)
    assert not os.path.lexists(folder / wanted.file_name)
    return sentence


def raising(error: BaseException) -> Callable[..., None]:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def part_of(folder: Path) -> bytes | None:
    path = folder / (FILE + ".part")
    return path.read_bytes() if path.exists() else None


def test_a_file_is_fetched_whole_under_its_name(site: Site, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    folder = tmp_path / "new" / "folder"
    path = fetch(source(site), folder, on_progress=lambda done, total: seen.append((done, total)))
    assert path == folder / FILE and path.read_bytes() == DATA
    assert listed(folder) == [FILE]
    done = [pair[0] for pair in seen]
    assert done[0] == 0 and done[-1] == len(DATA) and done == sorted(done)
    assert {pair[1] for pair in seen} == {len(DATA)}
    assert site.seen[0]["User-Agent"] == "servetwin" and "Range" not in site.seen[0]


def test_a_file_that_is_there_is_not_fetched_again(site: Site, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(DATA)
    assert fetch(source(site), tmp_path) == tmp_path / FILE
    assert site.seen == [] and listed(tmp_path) == [FILE]


@pytest.mark.parametrize(
    ("found", "part"), [(DATA[:-1], "has 307199 bytes"), (b"x" + DATA[1:], "has sha256")]
)
def test_another_file_of_that_name_is_never_overwritten(
    site: Site, tmp_path: Path, found: bytes, part: str
) -> None:
    (tmp_path / FILE).write_bytes(found)
    with pytest.raises(TraceError, match=part) as caught:
        fetch(source(site), tmp_path)
    assert str(tmp_path / FILE) in str(caught.value) and "move it away" in str(caught.value)
    assert (tmp_path / FILE).read_bytes() == found and site.seen == []


def test_a_folder_or_a_dangling_link_of_that_name_is_refused(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a" / FILE).mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / FILE).symlink_to(tmp_path / "nowhere")
    for folder in ("a", "b"):
        refuses(TraceError, "is not a file: move it away", fetch, source(site), tmp_path / folder)
    assert not (tmp_path / "nowhere").exists() and site.seen == []


@pytest.mark.parametrize(
    ("pins", "lacks"),
    [
        ({"sha256": None}, "no size and hash"),
        ({"bytes": None}, "no size and hash"),
        ({"url": None}, "no url is known"),
    ],
)
def test_what_is_not_pinned_is_to_be_put_there_by_hand(
    site: Site, tmp_path: Path, pins: dict[str, None], lacks: str
) -> None:
    sentence = refused(source(site, **pins), tmp_path / "folder")
    for part in (FILE, lacks, "https://example.org/page", str(tmp_path / "folder")):
        assert part in sentence
    assert site.seen == [] and not (tmp_path / "folder").exists()


@pytest.mark.parametrize("name", [name for name, one in SOURCES.items() if not one.pinned])
def test_the_unpinned_sources_name_their_page(tmp_path: Path, name: str) -> None:
    sentence = refused(SOURCES[name], tmp_path, url="https://127.0.0.1/never-asked")
    assert SOURCES[name].page in sentence and SOURCES[name].file_name in sentence


def test_an_unpinned_file_that_was_put_there_is_not_vouched_for(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"by hand")
    with pytest.raises(TraceError, match=r"is there already, but no size and hash .* use it as it is"):
        fetch(source(url=None, bytes=None, sha256=None), tmp_path)
    assert (tmp_path / FILE).read_bytes() == b"by hand"


def test_another_address_of_the_same_bytes_is_taken(site: Site, tmp_path: Path) -> None:
    wanted = source(site, url="https://192.0.2.1/gone.csv")
    assert fetch(wanted, tmp_path, url=site.url).read_bytes() == DATA


def test_a_cut_connection_is_resumed_where_it_was_cut(site: Site, tmp_path: Path) -> None:
    site.behave = lambda handler: handler.part(until=100_000)
    sentence = refused(source(site), tmp_path)
    assert "cut after 100000 of 307200 bytes" in sentence and "run the same command again" in sentence
    assert part_of(tmp_path) == DATA[:100_000]
    site.behave = lambda handler: handler.part(until=250_000)
    assert "after 250000 of 307200" in refused(source(site), tmp_path)
    site.behave = Handler.part
    seen: list[int] = []
    path = fetch(source(site), tmp_path, on_progress=lambda done, total: seen.append(done))
    assert path.read_bytes() == DATA and listed(tmp_path) == [FILE]
    assert site.ranges() == [None, "bytes=100000-", "bytes=250000-"]
    assert seen[0] == 250_000 and seen[-1] == len(DATA)


def test_a_cut_within_chunks_is_a_cut(site: Site, tmp_path: Path) -> None:
    site.behave = lambda handler: handler.chunks(DATA[:120_000], end=False)
    assert "cut after 120000" in refused(source(site), tmp_path)
    assert part_of(tmp_path) == DATA[:120_000]


def test_a_server_that_ignores_the_range_sends_from_zero(site: Site, tmp_path: Path) -> None:
    (tmp_path / (FILE + ".part")).write_bytes(b"y" * 1000)

    def whole(handler: Handler) -> None:
        handler.head(200, Content_Length=len(DATA))
        handler.wfile.write(DATA)

    site.behave = whole
    assert fetch(source(site), tmp_path).read_bytes() == DATA
    assert site.ranges() == ["bytes=1000-"]


def other_place(handler: Handler) -> None:
    if "Range" in handler.headers:
        handler.head(206, Content_Length=len(DATA) - 5, Content_Range=f"bytes 5-{len(DATA) - 1}/{len(DATA)}")
        handler.wfile.write(DATA[5:])
    else:
        handler.part()


def no_such_range(handler: Handler) -> None:
    handler.head(416, Content_Length=0) if "Range" in handler.headers else handler.part()


@pytest.mark.parametrize("behave", [other_place, no_such_range])
def test_a_server_that_cannot_go_on_there_is_asked_for_the_whole(
    site: Site, tmp_path: Path, behave: Callable[[Handler], None]
) -> None:
    (tmp_path / (FILE + ".part")).write_bytes(b"y" * 1000)
    site.behave = behave
    assert fetch(source(site), tmp_path).read_bytes() == DATA
    assert site.ranges() == ["bytes=1000-", None]


def test_an_unfinished_file_that_is_too_long_is_begun_anew(site: Site, tmp_path: Path) -> None:
    (tmp_path / (FILE + ".part")).write_bytes(DATA + b"z")
    assert fetch(source(site), tmp_path).read_bytes() == DATA
    assert site.ranges() == [None]


def test_an_unfinished_file_that_is_whole_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / (FILE + ".part")).write_bytes(DATA)
    assert fetch(source(url="http://127.0.0.1:1/x"), tmp_path).read_bytes() == DATA


def test_wrong_content_is_deleted(site: Site, tmp_path: Path) -> None:
    site.behave = lambda handler: handler.part(data=DATA[:-1] + b"!")
    sentence = refused(source(site), tmp_path)
    assert "sha256" in sentence and "(the test)" in sentence and "deleted" in sentence
    assert listed(tmp_path) == []


def test_a_wrong_beginning_is_found_at_the_end_and_deleted(site: Site, tmp_path: Path) -> None:
    (tmp_path / (FILE + ".part")).write_bytes(b"y" * 1000)
    assert "sha256" in refused(source(site), tmp_path)
    assert listed(tmp_path) == []
    assert fetch(source(site), tmp_path).read_bytes() == DATA
    assert site.ranges() == ["bytes=1000-", None]


@pytest.mark.parametrize("data", [DATA + b"more", DATA[:-1], b""])
def test_a_file_of_another_size_is_refused_before_it_is_sent(site: Site, tmp_path: Path, data: bytes) -> None:
    site.behave = lambda handler: handler.part(data=data)
    sentence = refused(source(site), tmp_path)
    assert f"has {len(data)} bytes instead of 307200" in sentence
    assert listed(tmp_path) == []


def test_a_file_of_another_size_does_not_cost_what_is_there(site: Site, tmp_path: Path) -> None:
    (tmp_path / (FILE + ".part")).write_bytes(DATA[:1000])
    site.behave = lambda handler: handler.part(data=DATA + b"more")
    assert "has 307204 bytes" in refused(source(site), tmp_path)
    assert part_of(tmp_path) == DATA[:1000]


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (DATA + b"m", "sends more than"),
        (DATA * 3, "sends more than"),
        (DATA[:-7], "ends after 307193 of 307200"),
        (b"", "ends after 0 of 307200"),
    ],
)
def test_a_size_that_shows_only_at_the_end_is_refused(
    site: Site, tmp_path: Path, data: bytes, part: str
) -> None:
    site.behave = lambda handler: handler.chunks(data)
    assert part in refused(source(site), tmp_path)
    assert listed(tmp_path) == []


@pytest.mark.parametrize("headers", [{}, {"Content_Length": 5}])
def test_a_server_that_names_no_size_is_enough(site: Site, tmp_path: Path, headers: dict[str, int]) -> None:
    """A size beside chunks is not to be read (RFC 9112)."""
    site.behave = lambda handler: handler.chunks(DATA, **headers)
    assert fetch(source(site), tmp_path).read_bytes() == DATA


@pytest.mark.parametrize(
    ("status", "part"),
    [
        (404, "answers 404: the file does not exist there"),
        (403, "answers 403: the file is not public"),
        (401, "answers 401: "),
        (407, "answers 407: write the user name and password"),
        (410, "does not exist there any more"),
        (416, "answers 416: give another url"),
        (429, "answers 429: wait"),
        (500, "the server reports an error"),
        (503, "the server reports an error"),
        (599, "the server reports an error"),
        (418, "answers 418: give another url"),
        (204, "answers 204 instead of a file"),
        (304, "answers 304"),
    ],
)
def test_an_error_of_the_server_is_a_sentence(site: Site, tmp_path: Path, status: int, part: str) -> None:
    site.behave = lambda handler: handler.head(status, Content_Length=0)
    sentence = refused(source(site), tmp_path)
    assert site.url in sentence and part in sentence
    assert listed(tmp_path) == []


@pytest.mark.parametrize("place", [None, "ftp://127.0.0.1/x", "file:///etc/hostname", "data:,x", "http://["])
def test_redirects_in_a_circle_or_elsewhere_are_refused(site: Site, tmp_path: Path, place: str) -> None:
    site.behave = lambda handler: handler.head(302, Location=place or site.url, Content_Length=0)
    sentence = refused(source(site), tmp_path)
    assert (
        "redirects in a loop, or to an address that is neither" in sentence or "not well formed" in sentence
    )
    assert len(site.seen) < 20


def test_a_redirect_keeps_the_range(site: Site, tmp_path: Path) -> None:
    (tmp_path / (FILE + ".part")).write_bytes(DATA[:1000])

    def moved(handler: Handler) -> None:
        if handler.path.endswith("there"):
            handler.part()
        else:
            handler.head(302, Location="/there", Content_Length=0)

    site.behave = moved
    assert fetch(source(site), tmp_path).read_bytes() == DATA
    assert site.ranges() == ["bytes=1000-"] * 2


@pytest.mark.parametrize(
    "url",
    [
        "", "trace.csv", "ftp://127.0.0.1/x", "file:///etc/hostname", "http://", "http:///x", "http://[::1/x",
        "http://127.0.0.1:99999/x", "http://127.0.0.1:x/", "http://a b/", "http://127.0.0.1/\n", "http://\u00e4/",
        "http://user:word@127.0.0.1/x",
    ],
)  # fmt: skip
def test_what_is_no_web_address_is_refused(tmp_path: Path, url: str) -> None:
    assert "is not an http or https address" in refused(source(), tmp_path, url=url)
    assert listed(tmp_path) == []


def test_hosts_that_cannot_be_reached_are_explained(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{free.getsockname()[1]}/x"
    assert "refuses the connection" in refused(source(), tmp_path, url=closed)
    tls = site.url.replace("http:", "https:")
    assert "certificate or encryption" in refused(source(), tmp_path, url=tls)
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *_, **__: (_ for _ in ()).throw(socket.gaierror(-2, "no"))
    )
    assert "name is not known" in refused(source(), tmp_path, url="http://unknown.invalid/x")
    long = "http://" + "a" * 70 + ".invalid/x"
    monkeypatch.undo()
    long = "http://" + "a" * 70 + ".invalid/x"
    for url, error, part in (
        ("http://unknown.invalid/x", socket.gaierror(-2, "no"), "name is not known"),
        (long, UnicodeError("label too long"), "not well formed"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(socket, "getaddrinfo", raising(error))
            assert part in refused(source(), tmp_path, url=url)


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (b"", "closes the connection"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "does not send valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", "does not send valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nxx", "sends the file compressed ('gzip')"),
        (b"HTTP/1.1 206 Partial\r\nContent-Length: 5\r\n\r\n12345", "without saying which"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -7\r\n\r\n12345", "cut after 5 of 307200"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n12345", "cut after 5 of 307200"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n12345", "cut after 0 of 307200"),
        (b"HTTP/1.1 206 P\r\nContent-Range: bytes 5-9/307200\r\n\r\n12345", "from its first byte"),
    ],
)
def test_strange_answers_are_explained(site: Site, tmp_path: Path, answer: bytes, part: str) -> None:
    site.behave = lambda handler: handler.wfile.write(answer) and None
    assert part in refused(source(site), tmp_path)


@settings(max_examples=30)
@given(
    answer=st.binary(max_size=60), start=st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 206 P\r\n"])
)
def test_no_answer_breaks_the_fetch(site: Site, tmp_path: Path, start: bytes, answer: bytes) -> None:
    site.behave = lambda handler: handler.wfile.write(start + answer) and None
    shutil.rmtree(tmp_path / "folder", ignore_errors=True)
    refused(source(site), tmp_path / "folder")


def test_a_silent_server_is_given_up(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_http, "TIMEOUT_S", 0.4)
    asleep = threading.Event()

    def silent_later(handler: Handler) -> None:
        handler.part(until=1000)
        handler.wfile.flush()
        asleep.wait(5)

    site.behave = silent_later
    sentence = refused(source(site), tmp_path)
    assert "stopped sending after 1000 of 307200 bytes: run the same command again" in sentence
    assert part_of(tmp_path) == DATA[:1000]
    site.behave = lambda handler: asleep.wait(5) and None
    assert "did not answer in time" in refused(source(site), tmp_path)
    asleep.set()
    assert part_of(tmp_path) == DATA[:1000]


def test_a_stop_by_the_user_keeps_what_came(site: Site, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done >= 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(source(site), tmp_path, on_progress=stop)
    kept = part_of(tmp_path)
    assert kept is not None and len(kept) >= 100_000 and DATA.startswith(kept)
    assert not (tmp_path / FILE).exists()
    assert fetch(source(site), tmp_path).read_bytes() == DATA
    assert site.ranges() == [None, f"bytes={len(kept)}-" if len(kept) < len(DATA) else None][: len(site.seen)]


def test_a_disk_without_room_is_found_before(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_part.shutil, "disk_usage", lambda _: SimpleNamespace(free=300_000))
    sentence = refused(source(site), tmp_path)
    assert "room for 300000 bytes" in sentence and "307200 more" in sentence and "free some" in sentence
    assert site.seen == [] and listed(tmp_path) == []
    (tmp_path / (FILE + ".part")).write_bytes(DATA[:10_000])
    assert fetch(source(site), tmp_path).read_bytes() == DATA


def test_a_disk_that_fills_up_keeps_what_is_there(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    write, room = os.write, [150_000]

    def filling(descriptor: int, piece: memoryview) -> int:
        if not room[0]:
            return write(full, piece)
        done = write(descriptor, piece[: room[0]])
        room[0] -= done
        return done

    with monkeypatch.context() as patch:
        patch.setattr(fetch_part.os, "write", filling)
        sentence = refused(source(site), tmp_path)
    os.close(full)
    assert "the disk is full" in sentence and "run the same command again" in sentence
    assert part_of(tmp_path) == DATA[:150_000]
    assert fetch(source(site), tmp_path).read_bytes() == DATA
    assert site.ranges() == [None, "bytes=150000-"]


def test_short_writes_are_completed(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(fetch_part.os, "write", lambda descriptor, piece: write(descriptor, piece[:7001]))
    assert fetch(source(site), tmp_path).read_bytes() == DATA


@pytest.mark.parametrize(
    ("call", "code", "part"),
    [
        ("open", errno.EACCES, "may not be written by this user"),
        ("open", errno.EROFS, "may not be written by this user"),
        ("fsync", errno.EIO, "cannot be used"),
        ("fsync", errno.ENOSPC, "the disk is full"),
        ("fstat", errno.EIO, "cannot be used"),
    ],
)
def test_what_the_file_system_refuses_is_a_sentence(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, part: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(fetch_part.os, call, raising(OSError(code, os.strerror(code))))
        assert part in refused(source(site), tmp_path)
    assert fetch(source(site), tmp_path).read_bytes() == DATA


def test_folders_that_cannot_be_made_are_explained(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert "cannot be used" in refused(source(site), tmp_path / "file")
    assert "cannot be used" in refused(source(site), tmp_path / "file" / "below")
    refuses(TraceError, "cannot be used", fetch, source(site), "nul\0byte")
    assert site.seen == []


def test_an_unfinished_file_that_is_none_is_refused(site: Site, tmp_path: Path) -> None:
    part = tmp_path / (FILE + ".part")
    victim = tmp_path / "victim"
    victim.write_bytes(b"dear")
    part.symlink_to(victim)
    assert "cannot be used" in refused(source(site), tmp_path)
    part.unlink()
    os.mkfifo(part)
    assert "is not a regular file" in refused(source(site), tmp_path)
    part.unlink()
    part.mkdir()
    assert "cannot be used" in refused(source(site), tmp_path)
    assert victim.read_bytes() == b"dear" and site.seen == []


def test_a_second_fetch_at_once_is_refused(site: Site, tmp_path: Path) -> None:
    sentences: list[str] = []

    def second(done: int, total: int) -> None:
        if not sentences:
            with pytest.raises(TraceError) as caught:
                fetch(source(site), tmp_path)
            sentences.append(str(caught.value))

    assert fetch(source(site), tmp_path, on_progress=second).read_bytes() == DATA
    assert "is being written by another fetch: wait" in sentences[0] and len(site.seen) == 1


def test_a_lock_won_on_a_file_that_got_its_name_meanwhile_harms_nothing(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other fetch ends between our opening its unfinished file and our lock on it."""
    part = tmp_path / (FILE + ".part")
    part.write_bytes(DATA)
    flock = fcntl.flock

    def other_ends(file: Any, how: int) -> None:
        if part.exists() and part.stat().st_size:
            part.rename(tmp_path / FILE)
        flock(file, how)

    monkeypatch.setattr(fetch_part.fcntl, "flock", other_ends)
    assert fetch(source(site), tmp_path).read_bytes() == DATA
    assert listed(tmp_path) == [FILE] and site.seen == []


def test_a_lock_won_on_a_file_that_was_deleted_meanwhile_is_won_again(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other fetch finds its content wrong and deletes it just before our lock on it."""
    part = tmp_path / (FILE + ".part")
    part.write_bytes(DATA[:10])
    flock, deleted = fcntl.flock, []

    def other_deletes(file: Any, how: int) -> None:
        if not deleted:
            part.unlink()
            deleted.append(part)
        flock(file, how)

    monkeypatch.setattr(fetch_part.fcntl, "flock", other_deletes)
    assert fetch(source(site), tmp_path).read_bytes() == DATA
    assert site.ranges() == [None] and listed(tmp_path) == [FILE]


@pytest.mark.parametrize("lock", ["absent", "refused"])
def test_a_file_system_without_locks_is_good_enough(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    if lock == "absent":
        monkeypatch.setattr(fetch_part, "fcntl", None)
    else:
        monkeypatch.setattr(fetch_part.fcntl, "flock", raising(OSError(errno.ENOLCK, "no locks")))
    assert fetch(source(site), tmp_path).read_bytes() == DATA


def test_a_file_that_appears_meanwhile_is_not_overwritten(site: Site, tmp_path: Path) -> None:
    def by_hand(done: int, total: int) -> None:
        (tmp_path / FILE).write_bytes(b"by hand")

    refuses(TraceError, "appeared while", fetch, source(site), tmp_path, on_progress=by_hand)
    assert (tmp_path / FILE).read_bytes() == b"by hand"


@settings(max_examples=50)
@given(
    kept=st.integers(0, 60),
    pieces=st.lists(st.integers(1, 30), max_size=8),
    error=st.sampled_from([None, OSError(104, "reset"), TimeoutError("slow"), IncompleteRead(b"")]),
    first=st.sampled_from([0, "kept", None]),
    total=st.sampled_from([None, 50, 49]),
    has_end=st.booleans(),
    damage=st.booleans(),
)
def test_the_final_name_is_given_to_the_right_bytes_only(
    tmp_path: Path, kept: int, pieces: list[int], error: Exception | None, first: Any, total: int | None,
    has_end: bool, damage: bool,
) -> None:  # fmt: skip
    """Any answer in any pieces: the file is whole, or it is not there and a good server completes it."""
    data = DATA[:50]
    folder = tmp_path / "folder"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / (FILE + ".part")).write_bytes((data + DATA)[:kept])

    def scripted(url: str, first_byte: int) -> Answer:
        start = first_byte if first == "kept" or not first_byte else first
        sent = bytearray(DATA[start or 0 :])
        if damage:
            sent[0] ^= 1
        sizes = iter(pieces)

        def read(n: int) -> bytes:
            size = next(sizes, None)
            if size is None and error is not None:
                raise error
            piece = bytes(sent[: min(size or 0, n)])
            del sent[: len(piece)]
            return piece

        return Answer(start, total, has_end, read, lambda: None)

    wanted = source(data=data, url="http://127.0.0.1:1/x")
    try:
        assert fetch(wanted, folder, open_url=scripted).read_bytes() == data
        return
    except TraceError:
        assert not (folder / FILE).exists()
    good = fetch_download.PIECE_BYTES

    def honest(url: str, first_byte: int) -> Answer:
        rest = [data[first_byte:]]
        return Answer(first_byte, 50, False, lambda n: rest.pop()[:good] if rest else b"", lambda: None)

    try:
        fetch(wanted, folder, open_url=honest)
    except TraceError as again:  # damage in what was kept shows at the end, and then is gone
        assert damage and "deleted" in str(again)
        fetch(wanted, folder, open_url=honest)
    assert (folder / FILE).read_bytes() == data and listed(folder) == [FILE]


def test_terms_come_with_fetch() -> None:
    assert "CC-BY 4.0" in terms(source()) and "A. Author" in terms(source())
