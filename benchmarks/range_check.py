"""Whether a rung's range holds what a better rung says: op tables beside the linear rung fitted to them, and
beside the same tables without their mixed steps, which are then added from their parts.

python -m benchmarks.range_check     (needs SERVETWIN_PROFILES; about 40 s)

Three tables of dense models (a mixture of experts has one rung), three loads each: the 300-request workload
that lies beside them, and drawn requests at 30 % and 70 % of what the GPUs are estimated to carry. The
engine's overhead is the same on both sides and taken as exact, so that only the errors of the step times are
judged. For each of four numbers of a run: how far the lower rung is off, and whether the number of the op
tables lies in its range.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.command import command, no_words
from benchmarks.sharegpt_300 import CASES, ShareGptCase, profile_of
from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Profile
from hwmodels.profiles.profile_file import save_profile
from servetwin.assemble.hardware import Hardware
from servetwin.config.compose.compose import load_config
from servetwin.results.ranges import value_of
from servetwin.run.ends import range_section
from servetwin.run.prepared import Prepared
from servetwin.run.simulate import execute, prepare

METRICS: Final = ("ttft_ms.mean", "ttft_ms.p99", "tpot_ms.mean", "e2e_ms.mean")
SHARES: Final = (0.3, 0.7)


def loads_of(case: ShareGptCase) -> Iterator[tuple[str, ...]]:
    """Words that say which requests come."""
    yield (f"trace=sharegpt_{case.model}_300",)
    for share in SHARES:
        yield ("trace=azure_conv_like", "trace.requests=600", f"trace.utilization={share}")


def exact_overhead(prepared: Prepared) -> Prepared:
    """The same run whose overhead and KV memory are known."""

    def known(hardware: Hardware) -> Hardware:
        return replace(hardware, overhead=replace(hardware.overhead, inside=True), kv_ends=None)

    kinds = {model: known(kind) for model, kind in prepared.hardware_of_model.items()}
    return replace(prepared, hardware_of_model=kinds)


def judged(
    case: ShareGptCase, profile: Profile, folder: Path
) -> Iterator[tuple[str, list[float], list[bool]]]:
    """(load and rung, errors, whether inside) of one table."""
    whole, bare = folder / "whole.json", folder / "bare.json"
    save_profile(profile, whole)
    save_profile(replace(profile, tables=replace(profile.tables, mixed=())), bare)
    rungs = {"linear": (whole, "linear"), "parts added": (bare, "op_table")}
    for words in loads_of(case):
        best = _prepared(case, whole, "op_table", words)
        truth = execute(best).summary
        for name, (path, rung) in rungs.items():
            run = exact_overhead(replace(_prepared(case, path, rung, words), workload=best.workload))
            summary = execute(run).summary
            ranges = range_section(run, summary, lambda end, _: execute(end).summary)["range"]
            pairs = [(value_of(summary, metric) or 0.0, value_of(truth, metric) or 0.0) for metric in METRICS]
            errors = [ours / theirs - 1.0 for ours, theirs in pairs]
            inside = [
                low <= theirs <= high for (low, high), (_, theirs) in zip(map(ranges.get, METRICS), pairs)
            ]
            yield f"{words[-1]}, {name}", errors, inside


def _prepared(case: ShareGptCase, profile: Path, rung: str, words: tuple[str, ...]) -> Prepared:
    own = [
        word
        for word in case.words(profile, Path("unused"), Path("unused"))
        if not word.startswith(("trace=", "trace."))
    ]
    return prepare(load_config([*own, *words, f"engine.step_time={rung}"], "simulate"))


def main(words: list[str]) -> int:
    """Print every run and the count; exit status 0."""
    no_words(words)
    root = os.environ.get("SERVETWIN_PROFILES")
    if root is None:
        raise HardwareError("SERVETWIN_PROFILES is not set: name the folder that holds llmservingsim/")
    os.environ["SERVETWIN_TRACES"] = os.pathsep.join(
        [str(Path(root) / "llmservingsim"), os.environ.get("SERVETWIN_TRACES", "")]
    )
    held = checked = 0
    for case in [each for each in CASES if each.data_parallel == 1]:
        print(f"\n{case.name:60}{''.join(f'{metric:>14}' for metric in METRICS)}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            for name, errors, inside in judged(case, profile_of(case, Path(root)), Path(folder)):
                cells = (f"{error:+.1%}{'' if held else ' OUT'}" for error, held in zip(errors, inside))
                print(f"{name:60}{''.join(f'{cell:>14}' for cell in cells)}", flush=True)
                held, checked = held + sum(inside), checked + len(inside)
    print(f"\n{held} of {checked} numbers of the op tables lie in the range of the lower rung")
    return 0


if __name__ == "__main__":
    command("benchmarks.range_check", __doc__, main)
