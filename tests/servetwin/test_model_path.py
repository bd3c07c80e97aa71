"""``model=PATH``: a config.json in place of a catalogue model."""

from pathlib import Path

import pytest

from servetwin.config.compose.compose import load_config
from servetwin.config.compose.resolved import load_resolved, resolved_yaml
from serving.vocabulary.errors import UserError


def test_a_path_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "a folder" / "config.json"
    config = load_config([f"model={path}", "model.tp=2", "out=x"], "simulate")
    assert (config.model.name, config.model.tp) == (str(path), 2)
    kept = tmp_path / "config.yaml"
    kept.write_text(resolved_yaml(config))
    assert load_resolved(kept) == config
    assert load_config(["model=llama3_8b", "out=x"], "simulate").model.name == "llama3_8b"


def test_the_name_it_has_inside_is_no_option() -> None:
    with pytest.raises(UserError, match="unknown option model=model_at_path"):
        load_config(["model=model_at_path", "out=x"], "simulate")
