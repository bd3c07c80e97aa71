"""A plugin of vLLM that writes down when requests pass. It runs in the server and imports nothing of ours.

Each line of FOLDER/marks.PID is a mark, a request's name and a moment of CLOCK_MONOTONIC in seconds:

    called    the API server gives it to AsyncLLM: HTTP, validation and tokenising are over
    sent      its message is handed to ZMQ
    engine    the engine core has it, in the queue of its loop
    emitted   the engine core made the outputs that hold its first token
    received  the API server has processed them
"""

import os
import time
from importlib import import_module
from typing import Any

VARIABLE = "SERVETWIN_VLLM_MARKS"
GROUP = "vllm.general_plugins"


def register() -> None:
    """Called by vLLM in each of its processes, before it makes anything; more than once in some."""
    engine = "vllm.v1.engine"
    AsyncLLM = import_module(f"{engine}.async_llm").AsyncLLM
    EngineCore = import_module(f"{engine}.core").EngineCore
    AsyncMPClient = import_module(f"{engine}.core_client").AsyncMPClient
    OutputProcessor = import_module(f"{engine}.output_processor").OutputProcessor

    if getattr(AsyncLLM, "marked", False):
        return
    AsyncLLM.marked = True
    add, send = AsyncLLM.add_request, AsyncMPClient.add_request_async
    preprocess, process = EngineCore.preprocess_add_request, OutputProcessor.process_outputs
    begun = set[str]()

    async def add_request(self: Any, request_id: str, *words: Any, **named: Any) -> Any:
        mark("called", request_id)
        return await add(self, request_id, *words, **named)

    async def add_request_async(self: Any, request: Any) -> None:
        await send(self, request)
        mark("sent", request.request_id)

    def preprocess_add_request(self: Any, request: Any) -> Any:
        found = preprocess(self, request)
        mark("engine", request.request_id)
        return found

    def process_outputs(self: Any, outputs: Any, emitted_s: Any = None, *words: Any, **named: Any) -> Any:
        first = [one.request_id for one in outputs if one.request_id not in begun]
        found = process(self, outputs, emitted_s, *words, **named)
        begun.update(first)
        for request_id in first:
            mark("emitted", request_id, emitted_s)
            mark("received", request_id)
        return found

    AsyncLLM.add_request = add_request
    AsyncMPClient.add_request_async = add_request_async
    EngineCore.preprocess_add_request = preprocess_add_request
    OutputProcessor.process_outputs = process_outputs


_file: tuple[int, int] | None = None  # process, descriptor


def mark(what: str, request_id: str, at_s: float | None = None) -> None:
    """Write a line; a forked process has a file of its own."""
    global _file
    at_s = time.monotonic() if at_s is None else at_s
    if _file is None or _file[0] != os.getpid():
        path = f"{os.environ[VARIABLE]}/marks.{os.getpid()}"
        _file = os.getpid(), os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(_file[1], f"{what} {request_id} {at_s:.6f}\n".encode())
