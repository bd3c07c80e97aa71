"""KV and work of the stages of a language model, for summary.json."""

from typing import Any

from hwmodels.models.load_units import model_units
from servetwin.assemble.hosted import hosted_models
from servetwin.assemble.stage_cut import decodes_in_stages
from servetwin.config.config import RunConfig
from serving.controller import Controller
from serving.services.language.service import LanguagePipeline


def language_section(config: RunConfig, controller: Controller, summary: dict[str, Any]) -> dict[str, Any]:
    """Return ``language_stages``: per stage, with the KV of one of its replicas; empty for other models."""
    if not decodes_in_stages(config):
        return {}
    (model,), rows = hosted_models(config), []
    service, busy = controller.services[model.name], summary["replica_busy_share"]
    assert isinstance(service, LanguagePipeline)
    for stage in service.stages:
        own = [engine.replica for engine in controller.engines.values() if engine.replica.part == stage.part]
        units = model_units(model.shape, layers=range(*stage.part.layers))
        rows.append(
            {
                "model": model.name,
                "stage": stage.index,
                "layers": list(stage.part.layers),
                "bytes": sum([unit.size_bytes for unit in units]),
                "replicas": stage.fleet.replicas,
                "kv_tokens": own[0].kv_blocks * own[0].block_tokens,
                "busy_replicas": sum([busy[replica.id] for replica in own if replica.id < len(busy)]),
            }
        )
    return {"language_stages": rows, **_moves(service), **_cuts(service)}


def _cuts(service: LanguagePipeline) -> dict[str, Any]:
    """Return ``cuts``: how often a new cut was made, and given up; empty if the model cannot be recut."""
    changes = service.cut_changes
    return {"cuts": {"made": changes.made, "given_up": changes.refused}} if changes.most_layers else {}


def _moves(service: LanguagePipeline) -> dict[str, Any]:
    """Return ``path_moves``: batches that moved to another path, if they may. ``joined``: to a replica that
    had more layers than before.
    """
    moves = service.moves
    if moves is None:
        return {}
    return {
        "path_moves": {
            "committed": moves.committed,
            "joined": moves.joined,
            "aborted": moves.aborted,
            "moved_bytes": moves.moved_bytes,
        }
    }
