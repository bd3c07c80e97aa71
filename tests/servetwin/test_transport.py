"""By which transport real workers read each other's memory: the key, and what a machine lacks."""

import re
import sys
from pathlib import Path

import pytest

from realexec import transport_registry as registry
from realexec.memory.arena import Arena
from servetwin.assemble.fleet import transport_of
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.resolved import resolved_yaml
from servetwin.config.workers_config import TRANSPORTS
from serving.vocabulary.errors import UserError
from tests.worlds.refusals import refuses


def test_a_run_names_one_or_has_the_first_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tuple(registry.TRANSPORTS) == tuple(registry.missing()) == TRANSPORTS
    plain, tcp = (load_config(["out=OUT", *words], "realexec") for words in ([], ["transport=tcp"]))
    assert (transport_of(plain), transport_of(tcp)) == ("shared_memory", "tcp")
    assert "transport" not in resolved_yaml(plain) and "transport: tcp" in resolved_yaml(tcp)
    monkeypatch.setattr(registry, "lack_of", lambda name: "no memfd" if name == "shared_memory" else None)
    assert transport_of(plain) == "tcp"
    shared = load_config(["out=OUT", "transport=shared_memory"], "realexec")
    refuses(UserError, r"\(shared_memory: no memfd\): write transport=NAME of another", transport_of, shared)


def test_a_transport_whose_package_is_missing_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    config = load_config(["out=OUT", "transport=nixl"], "realexec")
    refuses(UserError, "nixl package is not installed: write `pip install nixl`", transport_of, config)
    with (
        Arena.create(1) as arena,
        pytest.raises(UserError, match=r"nixl`\); or write transport=tcp"),
    ):
        registry.opened("nixl", arena)


def test_a_nixl_that_cannot_be_imported_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a run and, of a package that only a worker's host has, when a worker opens it."""
    package = tmp_path / "nixl"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "nixl"]:
        monkeypatch.delitem(sys.modules, name)
    (package / "_api.py").write_text("raise OSError('libucp.so.0: no such file')\n")
    why = r"nixl package cannot be imported \(OSError: libucp.so.0: no such file\): install it anew"
    assert re.search(why, str(registry.lack_of("nixl"))) and registry.missing()["tcp"] is None
    refuses(UserError, why, transport_of, load_config(["out=OUT", "transport=nixl"], "realexec"))
    with Arena.create(1) as arena, pytest.raises(UserError, match=why + ".*write transport=tcp"):
        registry.opened("nixl", arena)
    assert transport_of(load_config(["out=OUT"], "realexec")) == "shared_memory"


@pytest.mark.parametrize(
    ("kind", "word", "part"),
    [
        (
            "realexec",
            "transport=pigeon",
            "write one of shared_memory, tcp, nixl, verbs, peer_copy, nccl, gloo",
        ),
        ("simulate", "transport=tcp", "unknown key 'transport'"),
    ],
)
def test_what_is_no_transport_is_refused(kind: str, word: str, part: str) -> None:
    with pytest.raises(UserError, match=part):
        load_config(["out=OUT", word], kind)  # type: ignore[arg-type]
