"""Graph attention against Whitt's formula on runs that it has not seen; writes its weights.

    python -m benchmarks.quart_attention [runs=240] [to=policies/quart/attention_weights.py]

Every run is a pipeline that stays as it is (system=pipeline), drawn: model, CV of the arrivals, load, CV of
the pass times, replicas of each stage. Three quarters of the runs are trained on, the last quarter is held
out.
"""

import contextlib
import io
import json
import random
import re
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.command import command
from policies.quart.attention import Node, Weights, nodes_of, predicted, trained
from servetwin.cli import main as cli
from serving.protocols.stages import StageReplicaView, StageView
from serving.vocabulary.errors import UserError

STAGES = {"bert_21b": 8, "llama_7b_pass": 7, "whisper_9b": 3}
REQUESTS = 3000
HEAD = (
    '"""Weights of the smoother\'s graph attention, written by benchmarks/quart_attention.py."""\n\n'
    "from typing import Final\n\nfrom policies.quart.attention import Weights\n\nWEIGHTS: Final = "
)


def drawn(seed: int) -> list[str]:
    """The words of one run."""
    dice = random.Random(seed)
    model = dice.choice(list(STAGES))
    replicas = "+".join(str(dice.randint(1, 3)) for _ in range(STAGES[model]))
    return [
        "simulate",
        "system=pipeline",
        f"model={model}",
        "cluster=quart",
        "trace=gamma",
        f"trace.requests={REQUESTS}",
        f"trace.gap_cv={10 ** dice.uniform(-1, 0.9):.3f}",
        f"trace.utilization={dice.uniform(0.2, 0.95):.3f}",
        f"pipeline.times_cv={dice.uniform(0.05, 1.0):.3f}",
        f"pipeline.replicas={replicas}",
        f"seed={seed}",
    ]


def stages_of(seed: int, folder: Path) -> list[dict[str, Any]]:
    """What a run says of its stages."""
    with contextlib.redirect_stdout(io.StringIO()):
        status = cli.run([*drawn(seed), f"out={folder / str(seed)}"])
    assert status == 0, drawn(seed)
    views: list[dict[str, Any]] = json.loads((folder / str(seed) / "summary.json").read_text())["stages"]
    return views


def shown(view: dict[str, Any]) -> StageView:
    """A stage as a smoother sees it."""
    replicas = tuple(StageReplicaView(index, 0, "serving") for index in range(view["replicas"]))
    return StageView(
        index=view["stage"],
        replicas=replicas,
        minimum=1,
        maximum=8,
        arrival_per_s=view["arrivals_per_s"],
        arrival_cv=view["arrival_cv"],
        queued=0,
        service_s=view["pass_ms_mean"] / 1e3,
        service_cv=view["pass_cv"],
        delay_s=None,
        exec_s=view["exec_ms"] / 1e3,
        bytes=view["bytes"],
    )


def off(rows: list[tuple[float, ...]], cvs: list[list[float]]) -> tuple[float, float]:
    """Mean and 95th percentile of how far off, as a share of what a run had; first stages are given."""
    shares = sorted(
        abs(value / cv - 1)
        for row, real in zip(rows, cvs, strict=True)
        for value, cv in zip(row[1:], real[1:], strict=True)
    )
    return sum(shares) / len(shares), shares[int(0.95 * len(shares))]


def text_of(weights: Weights) -> str:
    """The module that holds the weights."""
    return f"{HEAD}{weights!r}\n"


def main(words: list[str]) -> int:
    """The table; the weights if ``to`` says where."""
    for word in words:
        if not re.fullmatch(r"runs=[1-9][0-9]*|to=.+", word):
            raise UserError(f"{word} is not known: write runs=240 or to=FILE")
    options = dict(word.split("=", 1) for word in words)
    runs = int(options.get("runs", "240"))
    with tempfile.TemporaryDirectory() as folder:
        tables = [stages_of(seed, Path(folder)) for seed in range(runs)]
    pipelines: list[tuple[Node, ...]] = [
        nodes_of(rows[0]["arrival_cv"], [shown(row) for row in rows]) for rows in tables
    ]
    cvs = [[float(row["arrival_cv"]) for row in rows] for rows in tables]
    seen = runs * 3 // 4
    weights = trained(pipelines[:seen], cvs[:seen])
    for name, part in (("trained on", slice(0, seen)), ("held out", slice(seen, runs))):
        whitt = off([tuple(node.whitt_cv for node in nodes) for nodes in pipelines[part]], cvs[part])
        learnt = off([predicted(weights, nodes) for nodes in pipelines[part]], cvs[part])
        print(
            f"{name}: Whitt off by {whitt[0]:.1%} on average, 95 % within {whitt[1]:.1%}; "
            f"attention {learnt[0]:.1%}, {learnt[1]:.1%}"
        )
    if "to" in options:
        Path(options["to"]).write_text(text_of(weights))
    return 0


if __name__ == "__main__":
    command("benchmarks.quart_attention", __doc__, main)
