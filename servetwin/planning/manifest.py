"""The Kubernetes objects of instances: a Deployment and a Service for each role.

Fields: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/deployment-v1/ and
.../service-resources/service-v1/; probes and shared memory as vLLM's page on Kubernetes has them
(docs.vllm.ai, deployment/k8s).
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, Final

from servetwin.config.config import RunConfig
from servetwin.planning.serve_command import PORT, VLLM, ServeCommand

# As they are published on Docker Hub.
_IMAGES: Final = {"vllm": "vllm/vllm-openai:v{}", "sglang": "lmsysorg/sglang:v{}"}
_AMD: Final = re.compile(r"mi[0-9]+")
_PROBE_S: Final = 10
_START_S: Final = 1800.0  # a server that does not answer by then is started again
_LONGEST_NAME: Final = 50
Object = dict[str, Any]


def object_name(config: RunConfig, role: str) -> str:
    """Return the objects' name: a label of DNS."""
    model = Path(config.model.name)
    text = (model.parent.name if model.name == "config.json" else model.name).lower()
    plain = re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:_LONGEST_NAME].strip("-")
    return "-".join([config.engine.software, plain or "model", *([] if role == "both" else [role])])


def gpu_resource(gpu: str) -> str:
    """Return the name under which Kubernetes counts these GPUs."""
    return "amd.com/gpu" if _AMD.match(gpu) else "nvidia.com/gpu"


def deployment(
    config: RunConfig, role: str, command: ServeCommand, gpus: int, replicas: int | None
) -> Object:
    """Return the Deployment of a role. ``replicas``: None if a scaler sets them."""
    name = object_name(config, role)
    labels = {"app": name}
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": str(PORT)}
    drain_s = config.system.instances.drain_s
    grace = {} if drain_s is None else {"terminationGracePeriodSeconds": math.ceil(drain_s)}
    shared = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    pod = {**grace, "containers": [_container(config, command, gpus)], "volumes": [shared]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            **({} if replicas is None else {"replicas": replicas}),
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod},
        },
    }


def _container(config: RunConfig, command: ServeCommand, gpus: int) -> Object:
    software = config.engine.software
    secret = {"secretKeyRef": {"name": "hugging-face", "key": "token", "optional": True}}
    settings = [{"name": name, "value": value} for name, value in command.settings.items()]
    amount = {gpu_resource(config.cluster.gpu): str(gpus)}
    start_s = config.system.instances.start_total_s
    longest_s = _START_S if start_s is None else max(_START_S, 3 * start_s)
    health = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": _PROBE_S}
    return {
        "name": software,
        "image": _IMAGES[software].format(config.engine.version),
        "command": list(command.words[: 2 if software == VLLM else 3]),
        "args": list(command.words[2 if software == VLLM else 3 :]),
        "env": [{"name": "HF_TOKEN", "valueFrom": secret}, *settings],
        "ports": [{"name": "http", "containerPort": PORT}],
        "resources": {"limits": amount, "requests": amount},
        "startupProbe": {**health, "failureThreshold": math.ceil(longest_s / _PROBE_S)},
        "readinessProbe": {**health, "failureThreshold": 1},
        "livenessProbe": {**health, "failureThreshold": 6, "timeoutSeconds": _PROBE_S},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }


def service(config: RunConfig, role: str) -> Object:
    """Return the Service in front of a role's pods."""
    name = object_name(config, role)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]},
    }
