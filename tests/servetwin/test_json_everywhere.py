"""Every command prints one JSON document where --json asks for it, and nothing beside it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from servetwin.cli import main as cli
from servetwin.cli.completion import own_words
from servetwin.cli.process import help_of
from tests.worlds.profile_tables import write_llmservingsim
from tests.worlds.step_profiles import folder, grid
from tests.worlds.user_policies import here

__all__ = ["here"]

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("trace=azure_conv_like", "trace.requests=20", "trace.rate_per_s=10", "cluster=a100_x2")
FEW = (*SMALL, "uncertainty=off")
IMPORT = ("profile", "import", "format=llmservingsim", "gpu=rtx4090", "model=llama3_1_8b", "tp=1")
PLAN = ("gpu=a100", "model.tp=1", "slo.ttft_p99_ms=2000", "max_gpus=2", "processes=1", "headroom=false")
# Words -> keys that the document has; in this order, since later ones read what earlier ones wrote.
ASKED: tuple[tuple[tuple[str, ...], set[str]], ...] = (
    (("simulate", *FEW, "journal=true", "out=a"), {"ttft_ms", "requests"}),
    (("simulate", *FEW, "system=round_robin", "out=b"), {"ttft_ms"}),
    (("replay", "a"), {"actions", "different"}),
    (("timeline", "a", "out=t.json.gz"), {"slices", "file"}),
    (("export", "a", "to=aiperf", "out=e.json"), {"requests", "file"}),
    (("plot", "a", "out=a.svg"), {"figure", "panels"}),
    (("compare", "a", "b"), set()),
    (("compare", "a", "b/requests.parquet"), {"errors"}),
    (("story", "a", "request=3"), {"time_ns", "what"}),
    (("sweep", *SMALL, "seed=0,1", "processes=1", "out=s"), {"points", "means"}),
    (("plan", *SMALL[:3], *PLAN), {"answer"}),
    (("advise", "log=log.csv", "system/scaler=hpa"), {"scalers", "recorded_mean"}),
    (("support",), {"model", "gpu"}),
    (("support", "gpu=a100_80g"), {"model", "gpu"}),
    (("support", "model=llama3_8b", "gpu=a100_80g"), {"sections", "kv_tokens"}),
    (("support", "cluster=blitz_b"), {"links", "paths"}),
    ((*IMPORT, "path=tables", "out=p.json"), {"file", "digest", "stamp"}),
    (("profile", "check", "path=p.json", "path=steps"), {"profiles"}),
    (("profile", "fit", "path=p.json"), {"coefficients"}),
    (("profile", "fit", "path=steps", "against=roofline"), {"step_s", "regimes"}),
    (("traces", "list"), {"name", "kind"}),
    (("traces", "describe", "poisson", "requests=50"), set()),
    (("traces", "sample", "poisson", "requests=50", "rate_scale=0.5", "out=x.csv"), {"file", "bursts"}),
    (("traces", "convert", "x.csv", "out=y.parquet"), {"file", "requests"}),
    (("traces", "fetch", "azure_conv"), set()),
    (("reproduce", "blitzscale", "list"), {"fig21"}),
    (("reproduce", "blitzscale", "fig21", "out=f"), {"folder", "counts", "rows"}),
    (("new-policy", "dispatch", "MyOwn"), {"module", "test", "words"}),
    (("doctor",), {"packages", "missing"}),
    (("completion", "bash"), {"words", "commands"}),
)
LINES = ("story",)
NEEDS_A_NETWORK = ("traces", "fetch")
UNTIL_CTRL_C = ("explore",)  # tests/servetwin/test_explore.py reads its document


def test_every_command_answers_in_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_llmservingsim(here).rename(here / "tables")
    folder(here / "steps", grid())
    (here / "log.csv").write_text("time,replicas,waiting\n0,1,0\n15,1,9\n30,1,9\n45,1,9\n")
    for words, keys in ASKED:
        if words[:2] == NEEDS_A_NETWORK:
            continue
        assert cli.run([*words, "--json"]) == 0, (words, capsys.readouterr().err)
        printed = capsys.readouterr().out
        texts = printed.splitlines() if words[0] in LINES else [printed]
        for text in texts:
            assert keys <= _names(json.loads(text)), words


def _names(found: Any) -> set[str]:
    """The keys of a document, or of the first of several."""
    while isinstance(found, list):
        found = found[0]
    return set(found)


def test_no_command_is_left_out() -> None:
    assert {words[0] for words, _ in ASKED} == set(cli.COMMANDS) - set(UNTIL_CTRL_C)
    for command in ("profile", "traces"):
        verbs = set(re.findall(rf"^  servetwin {command} (\w+)", help_of(command), re.MULTILINE))
        assert {words[1] for words, _ in ASKED if words[0] == command} == verbs


def test_a_shell_completes_what_compare_takes() -> None:
    for key in own_words()["compare"]:
        assert key in help_of("compare")
    assert {"overwrite=true", "page=", "json=true"} <= set(own_words()["compare"])


@pytest.mark.parametrize("command", ["profile", "traces", "reproduce"])
def test_json_alone_is_no_verb(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([command, "--json"]) == 2
    assert f"servetwin {command}" in capsys.readouterr().out


def test_every_exit_status_is_documented() -> None:
    """Those that help texts name stand in the table."""
    page = (ROOT / "docs/reference/COMMANDS.md").read_text(encoding="utf-8").partition("## Exit status")[2]
    rows = re.findall(r"^\|([\d, ]+)\|", page, re.MULTILINE)
    table = {int(one) for row in rows for one in row.split(",")}
    for usage in (help_of("servetwin"), help_of("realexec")):
        told = usage.partition("Exit status")[2].partition("\n--json")[0].partition("\n\n")[0]
        named = {int(number) for number in re.findall(r"(?:^|[,:] ?|\n)(\d+) (?=[a-zA-Z])", told)}
        assert {0, 1, 2, 3, 130} <= named <= table, told
