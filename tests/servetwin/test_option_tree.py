"""Merged options are kept by content: a hit is what Hydra's merge gives, and a changed file is seen."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servetwin.config import options
from servetwin.config.compose import fingerprint, hydra_merge, option_tree
from servetwin.config.compose.compose import followed, load_config, missing_keys
from servetwin.config.compose.content_cache import FOLDER_VARIABLE, digest_of
from servetwin.config.options import option_file, option_groups
from servetwin.config.overrides import Override
from servetwin.config.policy.groups import POLICY_GROUPS
from serving.vocabulary.errors import UserError

WORD_LISTS = [
    [],
    *([f"system={name}", "cluster=blitz_b"] for name in option_groups()["system"][::3]),
    *([f"engine={name}"] for name in option_groups()["engine"][::3]),
    ["cluster=a100_x3", "seed=7", "slo.ttft_ms=50"],
    ["cluster=dgx_h100_2x8", "model=qwen2_5_72b", "model.tp=8"],
    ["models=zipf", "models.count=3", "trace=gamma", "trace.gap_cv=8"],
    ["system/dispatch=power_of_two", "system/admission=token_bucket", "system.admission.rate_per_s=2"],
    ["trace=file", "trace.path=${a}", "trace.log_type=api"],
]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    option_tree._cached_merge.cache_clear()
    return tmp_path / "cache"


@pytest.fixture
def own_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "conf"
    shutil.copytree(options.CONF_DIR, folder)
    monkeypatch.setattr(options, "CONF_DIR", folder)
    return folder


def configured(*words: str) -> Any:
    """As a new process has it."""
    option_tree._cached_merge.cache_clear()
    return load_config([*words, "out=x"], "simulate")


def no_merge(*arguments: Any) -> Any:
    raise AssertionError("it is kept and was merged again")


@pytest.mark.parametrize("words", WORD_LISTS, ids=" ".join)
def test_a_hit_is_what_the_merge_gives(
    words: list[str], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged = configured(*words)
    assert len(list(cache.iterdir())) == 1
    monkeypatch.setattr(hydra_merge, "merged", no_merge)
    hit = configured(*words)
    assert hit == merged and repr(hit) == repr(merged)


def test_values_on_the_command_line_need_no_merge(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured("seed=1")
    monkeypatch.setattr(hydra_merge, "merged", no_merge)
    config = configured("seed=2", "engine.max_num_seqs=9", "trace.limit=3")
    assert (config.seed, config.system.batcher.params["max_num_seqs"], config.trace.limit) == (2, 9, 3)


def test_a_changed_option_file_is_seen(cache: Path, own_conf: Path) -> None:
    assert configured().slo.ttft_ms == 450
    file = own_conf / "slo" / "blitzscale_8b.yaml"
    file.write_text(file.read_text().replace("450", "451"))
    assert configured().slo.ttft_ms == 451
    (own_conf / "slo" / "mine.yaml").write_text(file.read_text().replace("451", "452"))
    assert configured("slo=mine").slo.ttft_ms == 452
    shutil.copy(own_conf / "slo" / "mine.yaml", file)
    assert configured().slo.ttft_ms == 452


def test_changed_code_is_merged_anew(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defaults of traces and the schema are in code, clusters in the catalogue."""
    monkeypatch.setattr(fingerprint, "_ROOT", tmp_path)
    (tmp_path / "policies").mkdir()
    code, cluster = tmp_path / "traces" / "gamma.py", tmp_path / "hwmodels" / "mine.yaml"
    for file in (code, cluster, tmp_path / "servetwin" / "config.py"):
        file.parent.mkdir()
        file.write_text("a: 1")
    found = {digest_of(fingerprint.fingerprint(options.CONF_DIR))}
    for file, text in ((code, "a: 11"), (cluster, "a: 2")):
        file.write_text(text)
        found.add(digest_of(fingerprint.fingerprint(options.CONF_DIR)))
    assert len(found) == 3


def test_what_is_kept_names_no_class_of_its_own(cache: Path, tmp_path: Path) -> None:
    """A kept tree is data, trusted no more than the config.yaml of a result folder."""
    configured()
    (entry,) = cache.iterdir()

    def forged(change: Callable[[dict[str, Any]], object]) -> None:
        tree = json.loads(entry.read_bytes().partition(b"\n")[2])
        change(tree)
        text = json.dumps(tree).encode()
        entry.write_bytes(digest_of([text]).encode() + b"\n" + text)

    whole = entry.read_bytes()
    for change in (
        lambda tree: tree["system"]["dispatch"].update(policy="evil:Policy"),
        lambda tree: tree["system"]["dispatch"].update(name="evil:Policy", policy="evil:Policy"),
        lambda tree: tree["system"]["dispatch"].update(name="../dispatch/least_kv"),
        lambda tree: tree["system"].pop("live"),
        lambda tree: tree.update(system=[]),
    ):
        forged(change)
        assert configured().system.dispatch.policy == "policies.dispatch:LeastOutstanding"
        assert entry.read_bytes() == whole


def test_options_from_outside_are_merged_each_time(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their parameters are those of a module, and of a file, which may be others in the next folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "kept_policy.py").write_text(
        "class First:\n    def __init__(self, turns: int = 3):\n        pass\n"
        "    def dispatch(self, request, fleet):\n        return 0, 'the first'\n"
    )
    assert configured("system/dispatch=kept_policy:First").system.dispatch.params == {"turns": 3}
    assert not cache.exists()


def test_files_that_do_not_fit_are_refused_each_time(cache: Path, own_conf: Path) -> None:
    (own_conf / "model" / "odd.yaml").write_text("name: odd\ntp: many\n")
    for _ in range(2):
        with pytest.raises(UserError, match=r"option files .*tp"):
            configured("model=odd")
    assert not cache.exists()


def test_references_of_any_form_are_followed_as_omegaconf_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL", "m")
    tree = {"a": 3, "b": {"c": "${a}", "d": ["${b.c}", "x"], "e": "${f}"}, "f": {"g": None}}
    plain = {"a": 3, "b": {"c": 3, "d": [3, "x"], "e": {"g": None}}, "f": {"g": None}}
    assert followed(tree) == plain == hydra_merge.followed(tree)
    assert followed(tree | {"h": "${oc.env:MODEL}_${a}"}) == plain | {"h": "m_3"}
    for wrong in ("${nobody}", "${a.b}", "${w}"):
        with pytest.raises(UserError, match="do not fit together"):
            followed({"a": 1, "w": wrong})


def test_missing_values_are_found_by_their_keys() -> None:
    tree = {"a": "???", "b": {"c": 1, "d": ["x", "???"]}, "e": "????"}
    assert list(missing_keys(tree)) == ["a", "b.d[1]"]


WITH_PARAMETERS = [
    (system, group)
    for system in option_groups()["system"]
    for group in POLICY_GROUPS
    if option_file("system", system).get(group, {}).get("params")
]


@pytest.mark.parametrize(("system", "group"), WITH_PARAMETERS)
def test_parameters_of_a_replaced_policy_go_with_it(system: str, group: str) -> None:
    file = option_file("system", system)
    default = next(entry[group] for entry in file["defaults"] if group in entry)
    others = [name for name in option_groups()[f"system/{group}"] if name != default]
    for name in (default, others[0], others[-1]):
        choices = [Override("system", system), Override(f"system/{group}", name)]
        found = option_tree.option_tree("simulate", choices)["system"][group]
        own = option_file(f"system/{group}", name)["params"]
        assert found["name"] == name
        assert found["params"] == (own | file[group]["params"] if name == default else own)


def test_system_with_another_dispatcher_composes() -> None:
    config = load_config(
        ["system=llumnix", "system/dispatch=prefix_aware", "cluster=dgx_h100", "out=x"], "simulate"
    )
    assert config.system.dispatch.name == "prefix_aware"
    assert "high_priority_target_tokens" not in config.system.dispatch.params
    assert config.system.migration.params["high_priority_target_tokens"] == 1600
