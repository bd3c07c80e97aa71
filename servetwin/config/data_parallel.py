"""Refusals of settings that do not fit a data-parallel group, one sentence each."""

from servetwin.config.config import RunConfig
from serving.vocabulary.errors import UserError


def check_data_parallel(config: RunConfig) -> None:
    """Refuse settings that groups of more than one engine do not support, with a UserError."""
    ranks, system, cluster, tp = (
        config.engine.data_parallel_size,
        config.system,
        config.cluster,
        config.model.tp,
    )
    if ranks == 1:
        return
    head, alone = f"engine.data_parallel_size={ranks}", "engine.data_parallel_size=1"
    if config.kind == "realexec":
        raise UserError(f"{head} cannot be run by realexec, whose workers share nothing: write {alone}")
    if system.elastic or system.instances.split:
        raise UserError(
            f"{head} does not fit system={system.name}, which moves engines and requests one by one: write "
            f"system=vllm or {alone}"
        )
    if cluster.start != "warm":
        raise UserError(
            f"{head} does not fit cluster.start={cluster.start}, as loads of a group's experts are not "
            f"built: leave cluster.start out or write {alone}"
        )
    if config.models.name != "one":
        raise UserError(f"{head} does not fit models={config.models.name}: write models=one or {alone}")
    if cluster.gpus % (tp * ranks):
        raise UserError(
            f"{head} with model.tp={tp} does not divide the {cluster.gpus} GPUs of cluster={cluster.name}: "
            f"write a cluster whose GPUs are a multiple of {tp * ranks}"
        )
