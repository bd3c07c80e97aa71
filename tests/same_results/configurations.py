"""The runs that are compared: a name that stays, and the words of ``servetwin simulate`` in this version.

A run takes well below 2 s of CPU. Those that need a file from outside are in ``RECORDED`` and run only where
that file is found; all others draw their workload.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

CHAT: Final = "trace=azure_conv_like trace.requests=800"
SURGE: Final = "trace=azure_code_like trace.rate_scale=4 trace.limit=800 cluster=blitz_b"
BURST: Final = "trace=burstgpt_like trace.rate_scale=4 trace.limit=800 cluster=blitz_a"
# Few KV blocks, so that requests are preempted.
TIGHT: Final = (
    "trace=azure_conv_like trace.requests=150 trace.utilization=2 cluster=a100_x2 engine.kv_tokens=16000 "
    "engine.max_new_tokens=1024 journal=true"
)
TOY_PROFILE: Final = "profile.json"  # written into the folder in which the runs are made
PROFILED: Final = (
    "cluster=a100_x2 trace=azure_conv_like trace.requests=60 trace.rate_per_s=200 trace.tokens_scale=0.02 "
    "engine.max_num_seqs=8 engine.max_num_batched_tokens=64 engine.kv_tokens=4096 "
    f"engine.profile={TOY_PROFILE}"
)
SYSTEMS: Final = (
    "vllm", "vllm_full", "vllm_half", "distserve_full", "distserve_half", "serverlessllm", "allcache",
    "round_robin", "round_robin_autoscaled", "infaas_pp", "infaas_pp_autoscaled", "llumnix_base",
    "llumnix_base_autoscaled", "llumnix", "llumnix_autoscaled", "pipeswitch", "blitz_network",
    "blitz_multicast", "blitzscale", "lambdascale", "tokenscale", "llumnix_v2", "pipeline", "quart",
    "infless", "inferline", "cocktail",
)  # fmt: skip
BLITZSCALE: Final = f"{SURGE} system=blitzscale journal=true"
MULTICAST: Final = f"{BURST} system=blitz_multicast journal=true"
SERVERLESS: Final = f"{SURGE} system=serverlessllm journal=true"
MANY: Final = (
    "models=zipf models.count=4 models.requests=400 models.rate_per_s=8 trace=azure_conv_like journal=true"
)

CONFIGURATIONS: Final[dict[str, str]] = {
    **{f"system {name}": f"{SURGE} system={name} journal=true" for name in SYSTEMS},
    "system llumnix, priorities": f"{SURGE} system=llumnix trace.high_priority_share=0.2 journal=true",
    **{
        f"system {name} on blitz_a, no journal": f"{BURST} system={name}"
        for name in ("serverlessllm", "pipeswitch", "blitz_multicast", "blitzscale", "lambdascale")
    },
    # Engines and what chooses batches, replicas, who is let in.
    "engine vllm_v1, no journal": CHAT,
    "engine vllm_v1, journal": f"{CHAT} journal=true",
    "engine vllm_v0": f"{CHAT} engine=vllm_v0 cluster=a100_x4 journal=true",
    "engine distserve": f"{CHAT} engine=distserve cluster=a100_x4 journal=true",
    "engine blitz_native": f"{CHAT} engine=blitz_native cluster=a100_x4 journal=true",
    "engine own_workers": f"{CHAT} engine=own_workers cluster=a100_x4 journal=true",
    "batcher prefill_first on vllm_v1": f"{CHAT} system/batcher=prefill_first cluster=a100_x4 journal=true",
    "batcher chunked_prefill on vllm_v0": (
        f"{CHAT} engine=vllm_v0 system/batcher=chunked_prefill cluster=a100_x4 journal=true"
    ),
    "dispatch least_kv": f"{CHAT} system/dispatch=least_kv journal=true",
    "dispatch round_robin": f"{CHAT} system/dispatch=round_robin journal=true",
    "dispatch power_of_two": f"{CHAT} system/dispatch=power_of_two seed=3 journal=true",
    "admission token_bucket": (
        f"{CHAT} system/admission=token_bucket system.admission.rate_per_s=4 system.admission.burst=3 "
        "journal=true"
    ),
    # Preemption; runs coalesced and step by step.
    "tight vllm_v1": TIGHT,
    "tight vllm_v1, step by step": f"{TIGHT} engine.exact=true",
    "tight vllm_v0": f"{TIGHT} engine=vllm_v0",
    "tight vllm_v0, step by step": f"{TIGHT} engine=vllm_v0 engine.exact=true",
    "tight, synchronous, first chunk reserved": (
        f"{TIGHT} engine.asynchronous=false engine.reserve_full_prompt=false engine.prefix_caching=false"
    ),
    "tight, queue at the door": f"{TIGHT} system.instances.queue=common system/dispatch=power_of_two",
    "few seats vllm_v1": f"{CHAT} cluster=a100_x2 engine.max_num_seqs=10 journal=true",
    "few seats, split": f"{SURGE} system=distserve_full engine.max_num_seqs=6 journal=true",
    "split, step by step": (
        "trace=azure_code_like trace.rate_scale=4 trace.limit=100 cluster=blitz_b system=distserve_full "
        "engine.exact=true journal=true"
    ),
    "live, step by step": (
        "trace=azure_code_like trace.rate_scale=4 trace.limit=100 cluster=blitz_b system=blitzscale "
        "engine.exact=true journal=true"
    ),
    # Several micro-batches in flight.
    "four stages": f"{CHAT} model.pp=4 journal=true",
    "two stages, tight": f"{TIGHT} model.pp=2",
    "two stages, tight, step by step": f"{TIGHT} model.pp=2 engine.exact=true",
    "four stages, virtual engines": f"{CHAT} engine=vllm_v0 model.pp=4 journal=true",
    # Step times.
    "step times linear": f"{CHAT} engine.step_time=linear cluster=a100_x4 journal=true",
    "step times roofline": f"{CHAT} engine.step_time=roofline cluster=rtx4090_x4 journal=true",
    "step times op table": f"{PROFILED} journal=true",
    "step times op table, vllm_v0": (
        f"{PROFILED} engine=vllm_v0 engine.profile_force=true engine.max_new_tokens=512"
    ),
    # Shards of a model, many models, roles by hand, cold starts.
    "tensor parallel": (
        "trace=azure_conv_like trace.requests=150 model=qwen2_5_72b cluster=a100_x16 slo=blitzscale_72b"
    ),
    "tensor parallel, elastic": (
        "trace=burstgpt_like trace.limit=200 model=llama3_70b cluster=blitz_a system=blitzscale journal=true"
    ),
    "many models, static": f"{MANY} cluster=a100_x16",
    "many models, elastic": f"{MANY} cluster=blitz_b_4x2 system=blitzscale",
    "many models, to none, two shapes": (
        f"{MANY} cluster=blitz_b_4x2 system=serverlessllm models.shapes=llama3_8b+mistral_24b "
        "system.instances.prefill_min=0 system.instances.decode_min=0 "
        "system.instances.keep_parameters_ms=2000"
    ),
    "split three to two, mean reserved": (
        f"{SURGE} system=distserve_full system.instances.prefill=3 system.instances.decode=2 "
        "engine.reserve=mean journal=true"
    ),
    "split, tight, reserve oracle": (
        f"{SURGE} system=distserve_full engine.reserve=oracle engine.kv_tokens=20000 "
        "engine.max_new_tokens=512 journal=true"
    ),
    "cold from ssd": f"{CHAT} engine=blitz_native cluster=blitz_a cluster.start=ssd journal=true",
    "cold from host": f"{CHAT} cluster=blitz_a_2x4 cluster.start=host journal=true",
    "cold from remote": (
        f"{CHAT} cluster=a3_highgpu_8g cluster.start=remote engine.loader=direct journal=true"
    ),
    "starts cold, terms": (
        f"{BURST} system=serverlessllm engine.start_up=vllm system.instances.start=cold journal=true"
    ),
    "starts hot, terms": (
        f"{BURST} system=allcache engine.start_up=vllm system.instances.start=hot journal=true"
    ),
    # Live scaling.
    "live ilp": f"{BLITZSCALE} system/live=ilp",
    "live best_effort": f"{BLITZSCALE} system/live=best_effort",
    "live stop": f"{BLITZSCALE} system/live=stop",
    "live none": f"{BLITZSCALE} system/live=none",
    "live, embedded at the source, three for a partner": (
        f"{BLITZSCALE} system.live.embedding=source system.live.tails_only=false system.live.slo_ms=1 "
        "system.live.targets_per_partner=3"
    ),
    "live, both roles in one": f"{BLITZSCALE} system.instances.split=false",
    "live best_effort, both roles in one": (
        f"{BURST} system=blitzscale system.instances.split=false system/live=best_effort journal=true"
    ),
    # Scaling, provisioning, copies.
    "scaler plain, per instance": (
        f"{SERVERLESS} system/scaler=load_monitor_plain system.instances.split=false "
        "system.instances.queue=per_instance system/dispatch=least_kv"
    ),
    "scaler mutating, no prescale": (
        f"{MULTICAST} system/scaler=load_monitor_mutating system.scaler.prescale_by=0 "
        "system.scaler.link_rule=linear system.scaler.scale_down_ms=100"
    ),
    "provision naive": f"{MULTICAST} system/provision=naive",
    "provision binomial": f"{BLITZSCALE} system/provision=binomial",
    "provision multicast, deep, instance by instance": (
        f"{MULTICAST} system.provision.order=depth system.provision.grouping=instance "
        "system.provision.scale_up_first=false"
    ),
    "provision host, everywhere": f"{SURGE} system=allcache system.cache.host_gb=100 journal=true",
    "cache ttl since use": f"{SERVERLESS} system.cache.ttl_s=5 system.cache.since=use",
    "cache pool kept when deployed": (
        f"{SURGE} system=serverlessllm system/cache=pool system.cache.drop_when_deployed=false journal=true"
    ),
    "estimates of the artefact": f"{BLITZSCALE} estimates=artefact",
}

# name -> (variable, a file below one of its folders, words)
_RECORDED: Final[Mapping[str, tuple[str, str, str]]] = {
    "recorded azure_conv": (
        "SERVETWIN_TRACES", "AzureLLMInferenceTrace_conv.csv",
        "trace=azure_conv trace.limit=400 journal=true",
    ),
    "recorded azure_code, busiest, blitzscale": (
        "SERVETWIN_TRACES", "AzureLLMInferenceTrace_code.csv",
        "trace=azure_code trace.window=busiest trace.window_s=60 trace.rate_scale=2 trace.limit=400 "
        "cluster=blitz_b system=blitzscale journal=true",
    ),
    "recorded mooncake": (
        "SERVETWIN_TRACES", "conversation_trace.jsonl",
        "trace=mooncake_conversation trace.limit=60 trace.tokens_scale=0.2 cluster=blitz_a "
        "system=blitz_multicast journal=true",
    ),
}  # fmt: skip


def recorded() -> dict[str, str]:
    """Those of the recorded workloads whose file is in one of the folders that its variable names."""
    found = {}
    for name, (variable, file, words) in _RECORDED.items():
        folders = filter(None, os.environ.get(variable, "").split(os.pathsep))
        if any((Path(folder) / file).is_file() for folder in folders):
            found[name] = words
    return found
