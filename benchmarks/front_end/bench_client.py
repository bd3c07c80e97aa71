"""CPU time of the client by which most published runs were measured: that of ``vllm bench serve``.

    PYTHON benchmarks/front_end/bench_client.py URL MODEL REPEATS

It runs under the Python that has vLLM, whose functions send the requests. It prints JSON: CPU seconds of its
process per request and per output token, a value of each per repeat.
"""

import asyncio
import json
import sys
import time
from importlib import import_module
from typing import Any

AT_A_TIME = 64
LENGTHS = (1, 65)  # output tokens of the two loads, of AT_A_TIME requests each


async def load_s(url: str, model: str, output_tokens: int) -> float:
    """CPU seconds of as many requests as run at a time, over connections that are there."""
    bench, aiohttp = import_module("vllm.benchmarks.lib.endpoint_request_func"), import_module("aiohttp")

    def request(length: int) -> Any:
        return bench.RequestFuncInput(
            prompt=[1_000 + length] * 100,
            api_url=f"{url}/v1/completions",
            prompt_len=100,
            output_len=length,
            model=model,
            ignore_eos=True,
        )

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_A_TIME)) as session:

        async def all_of(length: int) -> None:
            send = bench.async_request_openai_completions
            found = await asyncio.gather(*(send(request(length), session) for _ in range(AT_A_TIME)))
            failed = [one.error for one in found if not one.success]
            if failed:
                raise OSError(failed[0])

        await all_of(1)
        started = time.process_time()
        await all_of(output_tokens)
        return time.process_time() - started


def main(url: str, model: str, repeats: int) -> None:
    """Print what the repeats found."""
    found: dict[str, list[float]] = {"client_request_s": [], "client_token_s": []}
    for _ in range(repeats):
        short, long = (asyncio.run(load_s(url, model, length)) for length in LENGTHS)
        found["client_request_s"].append(short / AT_A_TIME)
        found["client_token_s"].append((long - short) / AT_A_TIME / (LENGTHS[1] - LENGTHS[0]))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
