"""Policies of every kind from outside the checkout decide real runs, whose journals replay by naming them.

Dispatch is in ``tests/servetwin/test_new_policy.py``, admission in ``tests/realexec/test_real_cli.py``.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from tests.worlds.outside_policies import ELASTIC, MOVING
from tests.worlds.user_policies import here

__all__ = ["here"]

pytestmark = pytest.mark.real

TRACE = ("trace=azure_conv_like", "journal=true")


def run_of(folder: Path, code: str, words: tuple[str, ...], own: Mapping[str, str]) -> dict[str, Any]:
    """The ``real`` section of a run with the classes of ``code`` in the groups of ``own``; it replays."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    module = "own_policies_for_real"
    (folder / f"{module}.py").write_text(code)
    named = [f"system/{group}={module}:{name}" for group, name in own.items()]
    assert realexec_cli.run(["run", *TRACE, *words, *named, "out=run"]) == 0
    asked = dict(sys.modules[module].ASKED)
    summary: dict[str, Any] = json.loads(Path("run/summary.json").read_text(encoding="utf-8"))
    real = summary["real"]
    assert summary["requests"]["finished"] == summary["requests"]["arrived"]
    assert real["tokens_checked"] > 100 and (real["tokens_different"], real["first_difference"]) == (0, None)
    assert cli.run(["replay", "run", *named]) == 0
    assert cli.run(["replay", "run"]) == 2, "they are what decided"
    return real | {"asked": asked}


def test_scaler_provision_and_live_policy_load_real_instances(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ("system=blitzscale", "system.instances.split=false", "workers=3")
    many = ("trace.rate_per_s=2000", "trace.limit=160", "trace.tokens_scale=0.05")
    own = {"scaler": "OwnScaler", "provision": "OwnProvision", "live": "OwnLive"}
    real = run_of(here, ELASTIC, (*one, *many), own)
    assert ", 0 differ\n" in capsys.readouterr().out
    assert set(real["asked"]) == {"scale", "provision", "select"}
    assert real["loads"] >= 2 and real["loaded_bytes"] > 0 and real["live_passes"] > 0


def test_batcher_and_migration_policy_move_real_requests(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All come at once to one of two, and stay for hundreds of steps."""
    crowd = ("trace.rate_per_s=5000", "trace.tokens_scale=0.3", "trace.limit=10", "migration.period_ms=20")
    own = {"dispatch": "OwnDispatch", "batcher": "OwnBatcher", "migration": "OwnMigration"}
    real = run_of(here, MOVING, ("system=vllm", "workers=2", *crowd), own)
    assert ", 0 differ\n" in capsys.readouterr().out
    assert set(real["asked"]) == {"dispatch", "batch", "pair", "choose"}
    assert real["migrations"] >= 1 and real["kv_bytes"] > 0
