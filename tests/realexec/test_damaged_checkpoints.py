"""A checkpoint's folder that holds anything else is refused in a sentence, and never read without end."""

import json
import os
from pathlib import Path

import pytest

from tests.worlds.refusals import refuses

pytest.importorskip("torch")
pytest.importorskip("transformers")

from realexec.model.models import model_spec
from realexec.model.weight_sources import INDEX_FILE, ONE_FILE, SafetensorsSource
from serving.vocabulary.errors import UserError

pytestmark = pytest.mark.real
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "text", ["", "null", "[1]", DEEP, "\xff", '{"model_type":"llama","num_hidden_layers":null}',
             '{"model_type":"llama","hidden_size":[1]}', '{"model_type":{"a":1}}'],
)  # fmt: skip
def test_a_config_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    refuses(UserError, r"config\.json|model_type", model_spec, {"checkpoint": str(tmp_path)})


def test_what_may_never_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    refuses(UserError, "no file", model_spec, {"checkpoint": str(tmp_path)})
    (tmp_path / INDEX_FILE).write_text(json.dumps({"weight_map": {"a": "part"}}))
    os.mkfifo(tmp_path / "part")
    refuses(UserError, "part is no file", SafetensorsSource(tmp_path, tied=False).read, "a", (1,))


@pytest.mark.parametrize("text", ["[]", "{}", '{"weight_map":[1]}', '{"weight_map":{"a":1}}', DEEP])
def test_an_index_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / INDEX_FILE).write_text(text)
    with pytest.raises(UserError, match=r"safetensors\.index\.json"):
        SafetensorsSource(tmp_path, tied=False).read("a", (1,))
    assert not (tmp_path / ONE_FILE).exists()
