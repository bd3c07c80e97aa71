"""Servers that answer with anything: the client reads within limits and says what it cannot use."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from realexec.http import client
from realexec.http.client import BrokenStream, address_of, ask
from realexec.http.connectors import computed
from realexec.http.dialects import DIALECTS, Chunk, ServerLoad, Wish
from realexec.http.metrics_text import samples_of
from realexec.http.probe import probe
from realexec.http.stream import tokens_of
from serving.vocabulary.errors import UserError

WISH = Wish("m", (1, 2), 5, "label")
MODELS = '{"data":[{"id":"m","max_model_len":4096}]}'
DEEP = "[" * 100_000 + "]" * 100_000
OK = "HTTP/1.1 200 OK\r\n"


def head(body: str) -> bytes:
    return f"{OK}Content-Length: {len(body.encode())}\r\n\r\n{body}".encode()


def asked(answers: dict[str, bytes], use: Callable[[Any], Awaitable[Any]], endless: bytes = b"") -> Any:
    """What ``use`` of a server returns; ``endless`` follows every answer until the client leaves."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            path = request.split(b" ")[1].decode()
            writer.write(answers.get(path, b"HTTP/1.1 404 no\r\nContent-Length: 0\r\n\r\n"))
            while endless and path in answers:
                writer.write(endless)
                await writer.drain()
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def run() -> Any:
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        async with server:
            return await use(address_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))

    return asyncio.run(run())


async def body_of(address: Any) -> bytes:
    answer = await ask(address, "/x")
    try:
        return await answer.body()
    finally:
        answer.close()


async def stream_of(address: Any) -> list[Any]:
    return [one async for one in tokens_of(address, DIALECTS["vllm"], WISH)]


@pytest.mark.parametrize("length", ["-1", "x", "1_0", "+5", "0x10", "9" * 30, ""])
def test_a_length_that_is_none_breaks_the_answer(length: str) -> None:
    with pytest.raises(BrokenStream, match="bytes"):
        asked({"/x": f"{OK}Content-Length: {length}\r\n\r\nabc".encode()}, body_of)


@pytest.mark.parametrize("size", ["-5", "0x5", "1_0", "", "F" * 16, " "])
def test_a_chunk_size_that_is_none_breaks_the_answer(size: str) -> None:
    with pytest.raises(BrokenStream):
        asked({"/x": f"{OK}Transfer-Encoding: chunked\r\n\r\n{size}\r\nabcde\r\n0\r\n\r\n".encode()}, body_of)


def test_chunks_are_read_as_they_come_however_long_they_are_said_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = f"{OK}Transfer-Encoding: chunked\r\n\r\n".encode()
    assert asked({"/x": said + b"5;a=b\r\nabcde\r\n1\r\nf\r\n0\r\n\r\n"}, body_of) == b"abcdef"
    monkeypatch.setattr(client, "LONGEST_BODY_BYTES", 1 << 16)
    with pytest.raises(BrokenStream, match="more than"):
        asked({"/x": said + b"FFFFFFFFFFFF\r\n"}, body_of, endless=b"x" * 4096)


@pytest.mark.parametrize("how", ["", "Transfer-Encoding: chunked\r\n", "Content-Length: 99999999999\r\n"])
def test_a_stream_without_a_newline_is_broken(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LONGEST_LINE_BYTES", 1 << 16)
    piece = b"1000\r\n" + b"x" * 4096 + b"\r\n" if "chunked" in how else b"x" * 4096
    with pytest.raises(BrokenStream, match="line of more than"):
        asked({"/v1/completions": f"{OK}{how}\r\n".encode()}, stream_of, endless=piece)


@pytest.mark.parametrize(
    "data",
    [
        '{"choices":[null]}',
        '{"choices":5}',
        '{"choices":["x"]}',
        '{"choices":{"a":1}}',
        '{"choices":[{"token_ids":[[1]]}]}',
        '{"choices":[{"token_ids":7}]}',
        '{"choices":[{"token_ids":[null]}]}',
        '{"choices":[{"token_ids":[-1]}]}',
        '{"choices":[{"token_ids":[1e400]}]}',
        '{"choices":[{"token_ids":[1' + "0" * 400 + "]}]}",
        '{"choices":[],"usage":[1]}',
        '{"choices":[],"usage":{"completion_tokens":"x"}}',
        '{"choices":[],"usage":{"completion_tokens":1000000000000}}',
        '{"choices":[{"logprobs":[1]}]}',
        '{"choices":[{"logprobs":{"tokens":5}}]}',
        '{"choices":[{"logprobs":{"tokens":["token_id:x"]}}]}',
        '{"choices":[{"text":"a","finish_reason":{"a":1}}]}',
        "null",
        DEEP,
    ],
)
def test_fields_of_another_kind_break_the_stream(data: str) -> None:
    with pytest.raises(BrokenStream, match="cannot be read"):
        asked({"/v1/completions": f"{OK}\r\ndata: {data}\n\n".encode()}, stream_of)


@pytest.mark.parametrize(
    "data",
    [
        '{"output_ids":5,"meta_info":{"completion_tokens":1}}',
        '{"output_ids":[[1]],"meta_info":{"completion_tokens":1}}',
        '{"output_ids":[],"meta_info":{"completion_tokens":1e12}}',
        '{"output_ids":[],"meta_info":{"completion_tokens":null}}',
        '{"meta_info":[1]}',
        '{"output_ids":[],"meta_info":{"completion_tokens":1,"finish_reason":{"type":[1]}}}',
    ],
)
def test_fields_of_another_kind_break_an_sglang_stream(data: str) -> None:
    async def stream(address: Any) -> list[Any]:
        return [one async for one in tokens_of(address, DIALECTS["sglang"], WISH)]

    with pytest.raises(BrokenStream, match="cannot be read"):
        asked({"/generate": f"{OK}\r\ndata: {data}\n\n".encode()}, stream)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("vllm", b'{"error":null,"choices":[{"token_ids":[7]}]}'),
        ("sglang", b'{"error":null,"output_ids":[7],"meta_info":{"completion_tokens":1}}'),
    ],
)
def test_an_error_that_is_null_is_none(name: str, data: bytes) -> None:
    assert DIALECTS[name].reader().read(data) == Chunk((7,))
    assert DIALECTS[name].reader().read(data.replace(b"null", b'"full"')).fault == "full"


@pytest.mark.parametrize(
    "models",
    ["null", "[]", "{}", '{"data":null}', '{"data":3}', '{"data":[[1]]}', '{"data":["m"]}', "<html>", DEEP,
     '{"data":[{"id":null}]}', '{"data":[{"id":{"a":[1]}}]}', '{"data":[{"id":"m","max_model_len":1'],
)  # fmt: skip
def test_a_server_that_lists_no_models_is_refused(models: str) -> None:
    with pytest.raises(UserError, match="server") as error:
        asked({"/v1/models": head(models)}, lambda address: probe(address, None, None, 5.0))
    assert ": start one there" in str(error.value) or "no model" in str(error.value)


@pytest.mark.parametrize("version", [DEEP, "[1]", '{"version":{"a":[1]}}', "null", "\xff"])
@pytest.mark.parametrize("longest", ["-1", "0", "1" + "0" * 400, "null", '"x"', "[]"])
def test_what_a_server_says_wrongly_of_itself_is_not_used(version: str, longest: str) -> None:
    tokens = "".join(f'data: {{"choices":[{{"token_ids":[{one}]}}]}}\n\n' for one in range(3))
    answers = {
        "/v1/models": head(f'{{"data":[{{"id":"m","max_model_len":{longest}}}]}}'),
        "/version": head(version),
        "/v1/completions": f"{OK}\r\n{tokens}data: [DONE]\n\n".encode(),
    }
    found = asked(answers, lambda address: probe(address, None, None, 5.0))
    assert (found.model, found.max_model_len, found.token_ids) == ("m", None, True)


def test_metrics_that_no_server_has_are_left_out() -> None:
    text = (
        "vllm:num_requests_running 1e308\nvllm:num_requests_running -5\nvllm:num_requests_running 2\n"
        "vllm:num_requests_waiting 1e400\nvllm:num_requests_waiting 3\n"
        f'vllm:cache_config_info{{num_gpu_blocks="{"9" * 5000}",block_size="16"}} 1\n'
    )
    assert DIALECTS["vllm"].load(samples_of(text)) == ServerLoad(
        running=2, waiting=3, used_share=None, total_blocks=None, block_tokens=16
    )


@pytest.mark.parametrize(
    "line", ["a{" + "b" * 200_000 + "} 1", "a" * 200_000, 'a{b="' + "\\" * 200_001 + "} 1"]
)
def test_a_long_line_of_metrics_is_read_once(line: str) -> None:
    """Hours if a regular expression looked at every character from every other one."""
    assert len(samples_of(line)) <= 1


@pytest.mark.parametrize("answer", [{"choices": [None]}, {"choices": 5}, {"choices": [{"token_ids": [[1]]}]}])
def test_an_answer_that_holds_no_kv_is_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="its answer has"):
        computed(WISH, {"kv_transfer_params": {"do_remote_prefill": True}} | answer)


@pytest.mark.parametrize("text", ["http://[::1]:8000", "http://[::1]:8000/v1", "[::1]:8000"])
def test_an_ipv6_address_keeps_its_brackets(text: str) -> None:
    address = address_of(text)
    assert (address.host, address.port) == ("::1", 8000)
    assert str(address) == "http://[::1]:8000" and address_of(str(address)) == address


@pytest.mark.parametrize(
    "text", ["http://a..b:80", f"http://{'a' * 70}:80", "http://me:pw@h:80", "http://[zz]:80"]
)
def test_a_host_that_no_name_server_takes_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="write http://HOST:PORT"):
        address_of(text)


def test_the_host_header_of_an_ipv6_server_has_brackets() -> None:
    heard = list[bytes]()

    async def run() -> None:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(head(json.dumps({})))
            writer.close()

        try:
            server = await asyncio.start_server(connected, "::1", 0)
        except OSError:
            pytest.skip("this machine has no IPv6")
        async with server:
            port = server.sockets[0].getsockname()[1]
            assert await body_of(address_of(f"http://[::1]:{port}")) == b"{}"
            assert f"Host: [::1]:{port}\r\n".encode() in heard[0]

    asyncio.run(run())
