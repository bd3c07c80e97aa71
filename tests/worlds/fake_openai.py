"""A server as vLLM's, or SGLang's, without a model: batches, a queue, KV blocks, metrics, and made-up tokens.

The next token depends on all tokens before it and on nothing else, so that a request which goes on elsewhere,
with prompt and tokens so far, gets the same ones. Standard library only; `python -m tests.worlds.fake_openai`
serves until it is killed.
"""

import asyncio
import json
import signal
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.worlds.fake_connectors import Connectors, Gone

Kind = Literal["vllm", "sglang", "openai"]
MODEL = "fake"
_SLEEP = ("/sleep?level=1", "/release_memory_occupation")
_WAKE = ("/wake_up", "/resume_memory_occupation")
_LIMITS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 50.0, 500.0, 5000.0)  # of histograms
_MULTIPLIER, _MODULUS = 1_000_003, (1 << 61) - 1


def state_of(tokens: list[int]) -> int:
    """What the next token follows from."""
    state = 1
    for token in tokens:
        state = (state * _MULTIPLIER + token + 1) % _MODULUS
    return state


def continued(prompt: list[int], tokens: int, vocab: int = 512) -> list[int]:
    """The tokens that follow a prompt: what an undisturbed server answers."""
    state, found = state_of(prompt), list[int]()
    for _ in range(tokens):
        found.append(state % vocab)
        state = (state * _MULTIPLIER + found[-1] + 1) % _MODULUS
    return found


@dataclass(frozen=True)
class Settings:
    """``step_s``, ``prefill_s_per_token``: what they take. ``kind``: as whose it answers. ``way_in_s``: how
    long a request is on its way to the engine.

    ``metrics``: it has some, ``kv_metric``: one of its KV memory among them.
    ``info_route``: where SGLang tells of itself, of old ones /get_server_info.
    ``sleeps``: it has a sleep mode and routes for it ("yes"), or "routes" alone, as vLLM's on a CPU.
    ``nixl``: it keeps and fetches KV as vLLM's connector does; ``mode``: SGLang's --disaggregation-mode.
    ``stubborn``: as a process it ignores SIGTERM, ``way_up_s``: what its start takes.
    ``log``: a file that gets a line for each stream that came to its end, with the times at which the request
    was read and each token written (CLOCK_MONOTONIC, which all processes of a machine share).
    """

    kind: Kind = "vllm"
    step_s: float = 0.0
    prefill_s_per_token: float = 0.0
    way_in_s: float = 0.0
    max_num_seqs: int = 8
    kv_blocks: int = 1024
    block_tokens: int = 16
    max_model_len: int = 4096
    vocab: int = 512
    aborts: bool = True
    metrics: bool = True
    kv_metric: bool = True
    info_route: str = "/server_info"
    sleeps: str = ""
    nixl: bool = False
    mode: str = "null"
    log: str = ""
    stubborn: bool = False
    way_up_s: float = 0.0


@dataclass(eq=False)
class Job:
    """One request here: ``sent`` tokens so far, of ``wanted``."""

    prompt: list[int]
    wanted: int
    rid: str
    out: "asyncio.Queue[int | None]"
    sent: list[int] = field(default_factory=list)
    ended: str = ""
    state: int = 0
    read_ns: int = field(default_factory=time.monotonic_ns)
    written_ns: list[int] = field(default_factory=list)
    entered_ns: int = 0
    scheduled_ns: int = 0
    first_ns: int = 0
    last_ns: int = 0

    @property
    def tokens(self) -> int:
        return len(self.prompt) + len(self.sent)


class FakeServer:
    """Use as a context manager; ``jobs`` are all requests it has taken, as they stand."""

    def __init__(self, settings: Settings | None = None, port: int = 0, host: str = "127.0.0.1") -> None:
        self.settings, self._port, self._host = settings or Settings(), port, host
        self.jobs: list[Job] = []
        self.refuses = ""  # if not empty every completion is refused so
        self.frozen = self.asleep = False
        self.told: list[str] = []  # of sleeping and waking
        self._tokens_to_pause = -1
        self._waiting: deque[Job] = deque()
        self._running: list[Job] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._server: asyncio.Server | None = None

    # From outside.

    def __enter__(self) -> "FakeServer":
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self._port}"

    def die(self) -> None:
        """As killed: nobody listens any more, and every connection is reset."""
        self._loop.call_soon_threadsafe(self._die)

    def pause_after(self, tokens: int) -> None:
        """It freezes when it has sent about so many more."""
        self._tokens_to_pause = tokens

    def go_on(self) -> None:
        """It pauses no more."""
        self._tokens_to_pause, self.frozen = -1, False

    def break_connections(self) -> None:
        """Streams end in the middle; the server serves on."""
        self._loop.call_soon_threadsafe(self._cut)

    # Inside.

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._open())
        self._started.set()
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._die()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _open(self) -> None:
        self._work = asyncio.Event()
        self._server = await asyncio.start_server(self._connected, self._host, self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        self.connectors = Connectors(self._port, self.settings.nixl, self.settings.mode)
        self._engine = asyncio.create_task(self._steps())

    def _die(self) -> None:
        if self._server is not None:
            self._server.close()
        self._engine.cancel()
        self._cut()

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    # The engine.

    async def _steps(self) -> None:
        one = self.settings
        while True:
            if not self._running and not self._waiting:
                self._work.clear()
                await self._work.wait()
            prompts = 0
            while self._waiting and len(self._running) < one.max_num_seqs and self._fits(self._waiting[0]):
                job = self._waiting.popleft()
                prompts += job.tokens
                job.scheduled_ns = time.monotonic_ns()
                self._running.append(job)
            await asyncio.sleep(one.step_s + prompts * one.prefill_s_per_token)
            while self.frozen or self.asleep:
                await asyncio.sleep(0.01)
            for job in list(self._running):
                self._token(job)

    def _fits(self, job: Job) -> bool:
        return self._used_blocks() + self._blocks(job.tokens + 1) <= self.settings.kv_blocks

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.settings.block_tokens)

    def _used_blocks(self) -> int:
        return sum(self._blocks(job.tokens) for job in self._running)

    def _token(self, job: Job) -> None:
        token = job.state % self.settings.vocab
        job.state = (job.state * _MULTIPLIER + token + 1) % _MODULUS
        job.sent.append(token)
        job.last_ns = time.monotonic_ns()
        job.first_ns = job.first_ns or job.last_ns
        job.out.put_nowait(token)
        self._tokens_to_pause -= 1
        self.frozen = self.frozen or self._tokens_to_pause == 0
        if len(job.sent) == job.wanted:
            self._end(job, "finished")

    def _end(self, job: Job, how: str) -> None:
        if job.ended:
            return
        job.ended = how
        if job in self._running:
            self._running.remove(job)
        if job in self._waiting:
            self._waiting.remove(job)
        job.out.put_nowait(None)

    # HTTP.

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")
            method, path, _ = lines[0].split(" ")
            headers = {
                name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines[1:])
            }
            size = int(headers.get("content-length", 0))
            body = json.loads(await reader.readexactly(size)) if size else {}
            await self._answer(method, path, body, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(
        self,
        method: str,
        path: str,
        body: Any,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        kind = self.settings.kind
        if method == "POST" and path == ("/generate" if kind == "sglang" else "/v1/completions"):
            await self._complete(body, reader, writer)
        elif method == "POST" and path == "/abort_request" and kind == "sglang":
            for job in [one for one in self.jobs if one.rid == body["rid"]]:
                self._end(job, "aborted")
            self._say(writer, 200, "{}")
        elif path == "/v1/models":
            entry = {"id": MODEL, "object": "model"}
            longest = {} if kind == "openai" else {"max_model_len": self.settings.max_model_len}
            self._say(writer, 200, json.dumps({"object": "list", "data": [entry | longest]}))
        elif path == "/health" and kind != "openai":
            self._say(writer, 200, "")
        elif path == "/metrics" and kind != "openai" and self.settings.metrics:
            self._say(writer, 200, self._metrics())
        elif (path, kind) == ("/version", "vllm"):
            self._say(writer, 200, '{"version":"0.0.fake"}')
        elif (path, kind) == (self.settings.info_route, "sglang"):
            more = {"disaggregation_mode": self.settings.mode, "disaggregation_bootstrap_port": self._port}
            more["max_total_num_tokens"] = self.settings.kv_blocks * self.settings.block_tokens
            self._say(writer, 200, json.dumps({"version": "0.0.fake"} | more))
        elif self.settings.sleeps and path in _SLEEP + _WAKE and method == "POST":
            self.told.append(path)
            self.asleep = path in _SLEEP and self.settings.sleeps != "routes"
            self._say(writer, 200, "{}")
        elif self.settings.sleeps and path == "/server_info?config_format=json":
            mode = {"model_config": {"enable_sleep_mode": self.settings.sleeps == "yes"}}
            self._say(writer, 200, json.dumps({"vllm_config": mode}))
        elif path.startswith("/kv/"):
            self._say(writer, *await self.connectors.give(path.removeprefix("/kv/")))
        else:
            self._say(writer, 404, '{"error":{"message":"not found"}}')
        await writer.drain()

    def _say(self, writer: asyncio.StreamWriter, status: int, text: str) -> None:
        payload = text.encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Length: {len(payload)}\r\nConnection: close\r\n\r\n".encode()
            + payload
        )

    def _metrics(self) -> str:
        one, used = self.settings, self._used_blocks() / self.settings.kv_blocks
        if one.kind == "sglang":
            rows = {
                "sglang:num_running_reqs": len(self._running),
                "sglang:num_queue_reqs": len(self._waiting),
                "sglang:token_usage": used,
                "sglang:max_total_num_tokens": one.kv_blocks * one.block_tokens,
            }
            if not one.kv_metric:
                del rows["sglang:token_usage"]
            own = "".join(f'{name}{{model_name="{MODEL}"}} {value}\n' for name, value in rows.items())
            return own + self._histograms("sglang")
        rows = {
            "vllm:num_requests_running": len(self._running),
            "vllm:num_requests_waiting": len(self._waiting),
            "vllm:kv_cache_usage_perc": used,
            "vllm:num_preemptions_total": 0,
            "vllm:external_prefix_cache_hits_total": self.connectors.received,
        }
        if not one.kv_metric:
            del rows["vllm:kv_cache_usage_perc"]
        ended = [job for job in self.jobs if job.ended == "finished"]
        for name, ns in (
            ("queue", sum(job.scheduled_ns - job.entered_ns for job in ended)),
            ("prefill", sum(job.first_ns - job.scheduled_ns for job in ended)),
        ):
            rows[f"vllm:request_{name}_time_seconds_sum"] = ns / 1e9
            rows[f"vllm:request_{name}_time_seconds_count"] = len(ended)
        text = self._histograms("vllm") + "# HELP vllm:num_requests_running Requests in the batch.\n"
        text += "".join(
            f'{name}{{engine="0",model_name="{MODEL}"}} {value}\n' for name, value in rows.items()
        )
        memory = f'block_size="{one.block_tokens}",num_gpu_blocks="{one.kv_blocks}"'
        return f'{text}vllm:cache_config_info{{{memory},sliding_window="None"}} 1.0\n'

    def _histograms(self, kind: str) -> str:
        """Of all requests, as the kind of server names them."""
        ended = [job for job in self.jobs if job.ended == "finished"]
        begun = [job for job in self.jobs if job.first_ns]
        slow = [job for job in ended if len(job.sent) > 1]
        gaps = [(job.last_ns - job.first_ns) / (len(job.sent) - 1) / 1e9 for job in slow]
        per_token = "request_time_per_output_token" if kind == "vllm" else "time_per_output_token"
        rows = {
            "time_to_first_token_seconds": [(job.first_ns - job.read_ns) / 1e9 for job in begun],
            f"{per_token}_seconds": gaps,
        }
        if kind == "vllm":
            rows["request_prompt_tokens"] = [len(job.prompt) for job in ended]
            rows["request_generation_tokens"] = [len(job.sent) for job in ended]
        return "".join(_histogram(f"{kind}:{name}", found) for name, found in rows.items())

    async def _complete(self, body: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        one = self.settings
        sampling = body.get("sampling_params", {})
        prompt = body.get("input_ids") or body.get("prompt")
        wanted = sampling.get("max_new_tokens") or body.get("max_tokens")
        wanted, refuses = self.connectors.wanted(body, wanted), self.refuses or self.connectors.refusal(body)
        if refuses or len(prompt) + wanted > one.max_model_len:
            what = refuses or f"{len(prompt)} + {wanted} tokens exceed {one.max_model_len}"
            self._say(writer, 400, json.dumps({"error": {"message": what, "code": 400}}))
            await writer.drain()
            return
        try:
            state = await self.connectors.fetch(body)
        except Gone as error:
            self._say(writer, 500, json.dumps({"error": {"message": str(error), "code": 500}}))
            await writer.drain()
            return
        state = state_of(prompt) if state is None else state
        job = Job(list(prompt), wanted, body.get("rid", ""), asyncio.Queue(), state=state)
        self.jobs.append(job)
        await asyncio.sleep(one.way_in_s)
        job.entered_ns = time.monotonic_ns()
        self._waiting.append(job)
        self._work.set()
        gone = asyncio.create_task(reader.read())
        if one.aborts:  # else it runs on for nobody
            gone.add_done_callback(lambda _: self._end(job, "aborted"))
        if body.get("stream") is False:
            await self._whole(job, body, gone, writer)
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        try:
            place = 0  # of the token, counted from 1
            while (token := await job.out.get()) is not None:
                place += 1
                job.written_ns.append(time.monotonic_ns())
                self._chunk(writer, self._event(job, token, place, body))
                await writer.drain()
            if job.ended == "finished":
                self.connectors.keep(body, state, len(job.prompt))
                await self.connectors.given_away(body)
                self._usage(writer, job, body)
                self._log(job)
                self._chunk(writer, "[DONE]")
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            gone.cancel()
            if one.aborts:
                self._end(job, "aborted")

    async def _whole(
        self, job: Job, body: Any, gone: "asyncio.Task[bytes]", writer: asyncio.StreamWriter
    ) -> None:
        """An answer in one piece."""
        while await job.out.get() is not None:
            pass
        gone.cancel()
        found = {"text": "", "finish_reason": "length", "token_ids": job.sent}
        if job.ended == "finished":
            where = self.connectors.keep(body, state_of(job.prompt), len(job.prompt))
            self._say(writer, 200, json.dumps({"choices": [found], "kv_transfer_params": where}))
            await writer.drain()

    def _event(self, job: Job, token: int, place: int, body: Any) -> str:
        last = place == job.wanted
        if self.settings.kind == "sglang":
            meta = {"completion_tokens": place, "finish_reason": {"type": "length"} if last else None}
            return json.dumps({"text": "", "output_ids": job.sent[:place], "meta_info": meta})
        choice: dict[str, Any] = {
            "index": 0,
            "text": f" t{token}",
            "finish_reason": "length" if last else None,
        }
        if body.get("return_token_ids") and self.settings.kind == "vllm":
            choice["token_ids"] = [token]
        return json.dumps({"object": "text_completion", "model": MODEL, "choices": [choice]})

    def _usage(self, writer: asyncio.StreamWriter, job: Job, body: Any) -> None:
        if body.get("stream_options", {}).get("include_usage"):
            self._chunk(writer, json.dumps({"choices": [], "usage": {"completion_tokens": len(job.sent)}}))

    def _log(self, job: Job) -> None:
        if self.settings.log:
            told = {"prompt_tokens": len(job.prompt), "read_ns": job.read_ns, "written_ns": job.written_ns}
            with Path(self.settings.log).open("a", encoding="utf-8") as file:
                file.write(json.dumps(told) + "\n")

    def _chunk(self, writer: asyncio.StreamWriter, text: str) -> None:
        payload = f"data: {text}\n\n".encode()
        writer.write(f"{len(payload):x}\r\n".encode() + payload + b"\r\n")


def _histogram(name: str, found: list[float]) -> str:
    labels = f'engine="0",model_name="{MODEL}"'
    rows = [(str(limit), sum(value <= limit for value in found)) for limit in _LIMITS]
    text = "".join(f'{name}_bucket{{{labels},le="{limit}"}} {count}\n' for limit, count in rows)
    text += f'{name}_bucket{{{labels},le="+Inf"}} {len(found)}\n'
    return f"{text}{name}_sum{{{labels}}} {sum(found)}\n{name}_count{{{labels}}} {len(found)}\n"


def main() -> None:
    """KEY=VALUE of Settings, port=N and host=ADDRESS."""
    words = dict(word.split("=", 1) for word in sys.argv[1:])
    port, host = int(words.pop("port", "0")), words.pop("host", "127.0.0.1")
    kinds = {name: type(getattr(Settings(), name)) for name in words}
    given = {
        name: value == "true" if kinds[name] is bool else kinds[name](value) for name, value in words.items()
    }
    settings = Settings(**given)
    if settings.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if settings.way_up_s:
        print(f"Loading weights took {settings.way_up_s:.2f} seconds", flush=True)
        time.sleep(settings.way_up_s)
    with FakeServer(settings, port, host) as server:
        print(server.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
