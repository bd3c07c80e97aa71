"""Shipped YAML is the same data by libyaml and by PyYAML itself, and what is wrong the same sentence."""

from pathlib import Path

import pytest
import yaml

from hwmodels import yaml_text
from hwmodels.yaml_text import users_yaml, yaml_data
from servetwin.config.options import CONF_DIR
from tests.worlds.refusals import refuses

SHIPPED = sorted(
    [*CONF_DIR.rglob("*.yaml"), *(Path(yaml_text.__file__).parent / "catalogue").rglob("*.yaml")],
    key=lambda file: file.as_posix(),
)


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML was built without libyaml")
def test_libyaml_reads() -> None:
    assert yaml_text._loader() is yaml.CSafeLoader


def test_every_shipped_file_is_the_same_data() -> None:
    """Types too: 1.0 is no 1, and the order of keys is what --help shows."""
    assert len(SHIPPED) > 80
    for file in SHIPPED:
        text = file.read_text(encoding="utf-8")
        assert repr(yaml_data(text)) == repr(yaml.safe_load(text)), file


@pytest.mark.parametrize(
    "text",
    [
        "a: [1, 2",
        "a: b: c",
        "'open",
        "a: &x 1\nb: *y",
        "\tname: x",
        "!!python/object/apply:os.getcwd []",
        "\0",
    ],
)
def test_what_is_wrong_is_told_as_before(text: str) -> None:
    with pytest.raises(yaml.YAMLError) as expected:
        yaml.safe_load(text)
    with pytest.raises(yaml.YAMLError) as found:
        yaml_data(text)
    assert str(found.value) == str(expected.value)


def test_without_libyaml_it_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    yaml_text._loader.cache_clear()
    try:
        assert yaml_text._loader() is yaml.SafeLoader and yaml_data("{a: [1, x]}") == {"a": [1, "x"]}
    finally:
        yaml_text._loader.cache_clear()


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
MERGED = "a0: &a0 {k: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOMB, "stands for more than"),
        (MERGED, "stands for more than"),
        ("a: &a [1, *a]", r"\*a contains itself"),
        ("[" * 100_000 + "]" * 100_000, "nests more than"),
        ("- " * 100_000, "nests more than"),
        ("a: !!bool 5", "does not fit its value"),
        ("a: !!timestamp x", "does not fit its value"),
        ("a: !!int ''", "does not fit its value"),
        ("a: 2001-99-99", "month"),
        ("a: " + "9" * 5000, "digits"),
        ("a: \xff".encode("latin-1"), "utf-8"),
    ],
)
def test_a_users_text_stands_for_no_more_than_fits(text: str | bytes, told: str) -> None:
    refuses(ValueError, told, users_yaml, text if isinstance(text, bytes) else text.encode())


def test_a_users_aliases_count_as_what_they_stand_for() -> None:
    text = b"a: &a {x: &b 1, y: [2, *b]}\nc: [*a, *a]\n"
    assert users_yaml(text) == yaml.safe_load(text)
    refuses(ValueError, r"another part of itself with '\*'", users_yaml, text, aliases=False)
    with pytest.raises(yaml.YAMLError, match="line 2"):
        users_yaml(b"a: 1\nb: [")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a: 1\nb: 2\na: 3\n", "a"),
        ("a: 1\n'a': 3\n", "a"),
        ("- x\n- {b: {c: [1, 2], d: {}, c: 2}}\n", "c"),
    ],
)
def test_a_key_written_twice_is_refused(text: str, key: str) -> None:
    refuses(ValueError, f"^{key} is written twice, again in line", users_yaml, text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "a: b\nb: a\nc: [a, a, {a: 1}, {a: 1}]\n",
        "x: &x {a: 1}\ny: &y {b: 2}\nz: {<<: *x, a: 2, <<: *y}\n",
        "x: &x a\n*x : x\nb: *x\nc: b\n",
    ],
)
def test_values_and_merged_keys_may_repeat(text: str) -> None:
    assert users_yaml(text.encode()) == yaml.safe_load(text)
