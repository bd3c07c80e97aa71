"""Real vLLM servers on CPU cores of this machine, with a tiny model of random parameters."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

from tests.worlds.free_ports import free_port

PYTHON = "SERVETWIN_VLLM_PYTHON"
MODEL = "tiny"
NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_buffer_device":"cpu"}'
START_S = 600.0  # 31 s on idle cores; the machine may be busy


def write_model(folder: Path, keys: dict[str, object]) -> None:
    """The shape alone: every server draws the same parameters from the same seed (--load-format dummy)."""
    more = {
        "architectures": ["LlamaForCausalLM"],
        "torch_dtype": "float32",
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(more | keys))


SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


def command(model: Path) -> list[str]:
    """The command line of a server, without its port."""
    return [
        os.environ[PYTHON], "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
        "--served-model-name", MODEL, "--load-format", "dummy", "--skip-tokenizer-init",
        "--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "8", "--enforce-eager",
        "--no-enable-prefix-caching", "--seed", "0", "--host", "127.0.0.1",
    ]  # fmt: skip


def has_nixl() -> bool:
    """Whether its Python has NIXL, by which servers hand KV over."""
    return not subprocess.run([os.environ[PYTHON], "-c", "import nixl"], capture_output=True).returncode


class VllmServer:
    """One server, in a session of its own: its engine is a child process, which would outlive it."""

    def __init__(self, model: Path, core: int, log: Path, nixl: bool = False) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        words = [*command(model), "--port", str(self.port)]
        words += ["--kv-transfer-config", NIXL] if nixl else []
        # One core for each: threads of two engines on the same cores wait for each other.
        told = {
            **SETTINGS,
            "VLLM_CPU_OMP_THREADS_BIND": str(core),
            "VLLM_SERVER_DEV_MODE": "1",  # /sleep and /wake_up
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
            "UCX_TLS": "tcp,self,sm",
        }
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                ["taskset", "-c", str(core), *words],
                env={**os.environ, **told},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Until it answers. Raises AssertionError with the end of its log."""
        until = time.monotonic() + START_S
        while time.monotonic() < until and self.process.poll() is None:
            if self._get("/health") is not None:
                return
            time.sleep(1)
        raise AssertionError(self.log.read_text(errors="replace")[-3000:])

    def running(self) -> float:
        """Requests in its batch, as it says."""
        return self.metric("vllm:num_requests_running")

    def metric(self, name: str) -> float:
        """What it says, summed over its engines."""
        text = self._get("/metrics") or ""
        found = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    def _get(self, path: str) -> str | None:
        try:
            connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.read().decode() if answer.status == 200 else None
        except OSError:
            return None

    def kill(self) -> None:
        """As kill -9: the server and its engine."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)


@contextmanager
def vllm_servers(folder: Path, keys: dict[str, object], count: int = 2) -> Iterator[Sequence[VllmServer]]:
    """So many, ready to serve."""
    write_model(folder / "model", keys)
    cores, nixl = sorted(os.sched_getaffinity(0)), has_nixl()
    found = [
        VllmServer(folder / "model", cores[one % len(cores)], folder / f"server-{one}.log", nixl)
        for one in range(count)
    ]
    try:
        for one in found:
            one.wait_ready()
        yield found
    finally:
        for one in found:
            one.kill()
