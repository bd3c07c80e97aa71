"""How long a running request is in no batch while it moves between two real workers, at long contexts.

python -m benchmarks.migration_down_time [MIGRATIONS [CONTEXT]] [KEY=VALUE ...]
    # 20 at 4,000 tokens: some five minutes on two cores

Requests of two clients go back and forth between two workers of `tiny_llama` over the links of
``cluster=local``: live, stage by stage, and then by stop and copy, a quarter as often. Every token is
compared with one undisturbed worker. KEY=VALUE: keys of ``realexec run``, such as device=cuda. Exit status 1
where a live migration takes longer than a step, or than stop and copy.
"""

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import command, count
from servetwin.cli.realexec import run
from serving.protocols.migration import InstancesView, Pair, SourceView
from serving.vocabulary.errors import UserError

MIGRATIONS = 20
CONTEXT = 4000
# A migration takes some 0.7 s over 25 MB/s: 9 came of 1,200 tokens, on two cores that other work shared.
TOKENS_PER_MIGRATION = 150
OUTPUT_TOKENS = 240
WORDS = (
    "run", "system=vllm", "system/migration=benchmarks.migration_down_time:BackAndForth",
    "system/dispatch=round_robin", "cluster=local", "workers=2", "model=tiny_llama", "trace=file",
    "trace.limit=null", "trace.tokens_scale=1", "trace.clients=2", "migration.period_ms=100",
    "migration.last_stage=step",
)  # fmt: skip


class BackAndForth:
    """Requests of the instance with more requests migrate to the other one, whatever its load."""

    def pair(self, view: InstancesView) -> Sequence[Pair]:
        """The pair of both instances, while neither migrates."""
        if any(view.engaged(replica) for replica in view.taking):
            return []
        _, source = max((view.load(replica, "outstanding"), -replica) for replica in view.taking)
        return [Pair(-source, other, "back and forth") for other in view.taking if other != -source]

    def choose(self, view: SourceView) -> tuple[int, str] | None:
        """The first decoding request."""
        return next(((request, "back and forth") for request in view.decoding()), None)


def moved(folder: Path, mode: str, migrations: int, context: int, keys: Sequence[str]) -> dict[str, Any]:
    """The summary of a run with about so many migrations; ``keys`` are of `realexec run`."""
    requests = max(2, -(-migrations * TOKENS_PER_MIGRATION // OUTPUT_TOKENS))
    trace = folder / f"{mode}.csv"
    rows = [f"{0.1 * number:.1f},{context + 8 * number},{OUTPUT_TOKENS}\n" for number in range(requests)]
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(rows))
    out = folder / mode
    room = f"engine.kv_tokens={8 * (context + OUTPUT_TOKENS)}"
    by_key = {word.partition("=")[0]: word for word in (*WORDS[1:], room, *keys)}
    words = [WORDS[0], *by_key.values(), f"trace.path={trace}", f"migration.mode={mode}", f"out={out}", "-q"]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        status = run(words)
    summary_file = out / "summary.json"
    summary: dict[str, Any] = json.loads(summary_file.read_text()) if summary_file.exists() else {}
    if status:
        why = summary.get("real", {}).get("first_difference") or output.getvalue()
        raise UserError(f"the run with migration.mode={mode} ended with status {status}: {why}")
    return summary


def row(mode: str, summary: dict[str, Any]) -> tuple[float, float]:
    """Print it; returns (median down time, median step), ms."""
    migrations, real = summary["migrations"], summary["real"]
    down, step_ms = migrations["down_ms"], summary["itl_ms"]["p50"]
    print(
        f"{mode:14s} {migrations['committed']:4d} migrations   down {down['p50']:7.1f} ms (P50) "
        f"{down['max']:7.1f} (most)   a step {step_ms:6.1f} ms (P50)   {real['tokens_checked']} tokens, "
        f"{real['tokens_different']} differ"
    )
    return down["p50"], step_ms


def main(words: list[str]) -> int:
    """Exit status."""
    keys = [word for word in words if "=" in word]
    words = [word for word in words if word not in keys]
    if len(words) > 2:
        raise UserError(f"it takes two numbers and {words[2]!r} was given too: leave it out")
    migrations = count(words[0], "number of migrations", str(MIGRATIONS)) if words else MIGRATIONS
    context = count(words[1], "number of tokens", str(CONTEXT)) if len(words) > 1 else CONTEXT
    with tempfile.TemporaryDirectory() as folder:
        print(f"contexts from {context} tokens on, two workers", flush=True)
        live_ms, step_ms = row("live", moved(Path(folder), "live", migrations, context, keys))
        sys.stdout.flush()
        copied = moved(Path(folder), "stop_and_copy", migrations // 4, context, keys)
        copied_ms, _ = row("stop_and_copy", copied)
    print(f"live: {live_ms / step_ms:.2f} of a step, {live_ms / copied_ms:.3f} of stop and copy")
    return int(live_ms >= min(step_ms, copied_ms))


if __name__ == "__main__":
    command("benchmarks.migration_down_time", __doc__, main)
