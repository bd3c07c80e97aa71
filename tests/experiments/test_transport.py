"""By which transport real workers read each other's memory: the key, and what a machine lacks."""

import pytest

from experiments.build.fleet import transport_of
from experiments.compose.compose import load_config
from experiments.compose.resolved import resolved_yaml
from experiments.config.config import TRANSPORTS
from realexec.memory.arena import Arena
from realexec.transports import registry
from serving.vocabulary.errors import UserError


def test_a_run_names_one_or_has_the_first_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tuple(registry.TRANSPORTS) == tuple(registry.missing()) == TRANSPORTS
    plain, tcp = (load_config(["out=OUT", *words], "realexec") for words in ([], ["transport=tcp"]))
    assert (transport_of(plain), transport_of(tcp)) == ("shared_memory", "tcp")
    assert "transport" not in resolved_yaml(plain) and "transport: tcp" in resolved_yaml(tcp)
    monkeypatch.setattr(registry, "missing", lambda: {"shared_memory": "no memfd", "tcp": None})
    assert transport_of(plain) == "tcp"
    shared = load_config(["out=OUT", "transport=shared_memory"], "realexec")
    with pytest.raises(UserError, match=r"\(shared_memory: no memfd\): write transport=NAME of another"):
        transport_of(shared)


def test_a_transport_whose_package_is_missing_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    config = load_config(["out=OUT", "transport=nixl"], "realexec")
    with pytest.raises(UserError, match="nixl package is not installed: write `pip install nixl`"):
        transport_of(config)
    with (
        Arena.create(1) as arena,
        pytest.raises(UserError, match=r"nixl`\); or write transport=tcp"),
    ):
        registry.opened("nixl", arena)


@pytest.mark.parametrize(
    ("kind", "word", "part"),
    [
        ("realexec", "transport=pigeon", "write one of shared_memory, tcp, nixl, verbs"),
        ("simulate", "transport=tcp", "unknown key 'transport'"),
    ],
)
def test_what_is_no_transport_is_refused(kind: str, word: str, part: str) -> None:
    with pytest.raises(UserError, match=part):
        load_config(["out=OUT", word], kind)  # type: ignore[arg-type]
