"""A streaming client of one thread that costs little: requests are made before they are sent."""

import json
import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any, Final

END: Final = b"0\r\n\r\n"  # of a response in chunks
COMPLETIONS: Final = "/v1/completions"
CHAT: Final = "/v1/chat/completions"
Prompt = str | Sequence[int]


@dataclass(slots=True)
class Answer:
    """A request and what came back: moments of CLOCK_MONOTONIC, which all processes of a host share."""

    name: str
    sent_s: float = 0.0
    first_s: float = 0.0  # its first chunk
    end_s: float = 0.0
    chunks: int = 0
    _last: bytes = field(default=b"", repr=False)

    def read(self, data: bytes, now_s: float) -> bool:
        """Count what came; whether it was the end."""
        found = data.count(b"data: {")
        if found and not self.chunks:
            self.first_s = now_s
        self.chunks += found
        self._last = (self._last + data)[-len(END) :]
        if self._last == END:
            self.end_s = now_s
        return self.end_s > 0


@dataclass(frozen=True, slots=True)
class Request:
    """Bytes to send, and the name by which the server's marks call it."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server listens and what it calls its model."""

    host: str
    port: int
    model: str

    def request(self, name: str, prompt: Prompt, output_tokens: int, path: str = COMPLETIONS) -> Request:
        """A streaming request with exactly so many output tokens."""
        fields: dict[str, Any] = {
            "model": self.model,
            "max_tokens": output_tokens,
            "ignore_eos": True,
            "temperature": 0.0,
            "stream": True,
        }
        if path == CHAT:
            fields["messages"] = [{"role": "user", "content": prompt}]
        else:
            fields["prompt"] = prompt if isinstance(prompt, str) else list(prompt)
        body = json.dumps(fields).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
            f"X-Request-Id: {name}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return Request(name, head.encode() + body)

    def ask(self, path: str, **fields: Any) -> dict[str, Any]:
        """A JSON answer to a JSON question, or to none. Raises OSError where there is none."""
        connection = HTTPConnection(self.host, self.port, timeout=60)
        body = json.dumps({"model": self.model, **fields}) if fields else None
        connection.request(
            "POST" if body else "GET", path, body, {"Content-Type": "application/json"} if body else {}
        )
        response = connection.getresponse()
        text = response.read().decode()
        if response.status != 200:
            raise OSError(f"{path} answered {response.status}: {text[:200]}")
        found: dict[str, Any] = json.loads(text) if text.startswith("{") else {"text": text}
        return found

    def tokens(self, text: str) -> list[int]:
        """Of its tokeniser, without the one that begins a prompt."""
        found: list[int] = self.ask("/tokenize", prompt=text, add_special_tokens=False)["tokens"]
        return found

    def text(self, tokens: Sequence[int]) -> str:
        """Of so many tokens."""
        found: str = self.ask("/detokenize", tokens=list(tokens))["prompt"]
        return found

    def steps(self) -> int:
        """Engine steps with outputs since it began, as its metrics count them."""
        lines = self.ask("/metrics")["text"].splitlines()
        name = "vllm:iteration_tokens_total_count"
        return int(sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)))


class Streams:
    """Answers that are being read; connections are kept and used again."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._idle: list[socket.socket] = []
        self._reading = selectors.DefaultSelector()
        self.running = 0

    def connect(self, count: int) -> None:
        """Have so many connections before anything is timed."""
        while len(self._idle) < count:
            self._idle.append(self._connected())

    def start(self, request: Request, connect: bool = False) -> Answer:
        """Send it; ``connect``: on a connection made now, whose making counts."""
        answer = Answer(request.name, time.monotonic())
        one = self._connected() if connect or not self._idle else self._idle.pop()
        one.sendall(request.data)
        self._reading.register(one, selectors.EVENT_READ, answer)
        self.running += 1
        return answer

    def wait(self, timeout_s: float | None = None) -> list[Answer]:
        """Read what is there, or what comes within the time; the answers that ended."""
        ended = []
        for key, _ in self._reading.select(timeout_s):
            one = key.fileobj
            assert isinstance(one, socket.socket)
            data = one.recv(1 << 16)
            if not data:
                raise OSError(f"the server closed the connection of {key.data.name}: see its log")
            if key.data.read(data, time.monotonic()):
                self._reading.unregister(one)
                self._idle.append(one)
                self.running -= 1
                ended.append(key.data)
        return ended

    def wait_s(self, seconds: float) -> list[Answer]:
        """Read for so long; the answers that ended."""
        until, ended = time.monotonic() + seconds, []
        while (left_s := until - time.monotonic()) > 0:
            ended += self.wait(left_s)
        return ended

    def close(self) -> None:
        """End the connections; the server aborts what still runs on them."""
        for key in list(self._reading.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._reading.close()
        for one in self._idle:
            one.close()

    def _connected(self) -> socket.socket:
        one = socket.create_connection((self._server.host, self._server.port))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return one


def answers(server: Server, requests: Sequence[Request], concurrency: int) -> list[Answer]:
    """All of them, so many at a time: the next is sent when one has ended."""
    streams, left, ended = Streams(server), list(reversed(requests)), list[Answer]()
    streams.connect(min(concurrency, len(requests)))
    try:
        while left or streams.running:
            while left and streams.running < concurrency:
                streams.start(left.pop())
            ended += streams.wait()
    finally:
        streams.close()
    return ended
