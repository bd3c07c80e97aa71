"""make fast: what is compiled again, and what an interrupted build leaves. No compiler runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from nativecore import BUILT_NAME, build
from nativecore.library import shims_together
from nativecore.modules import SINGLE
from nativecore.objects import Batch, Compiler, compiled
from nativecore.tools import Tools

# $2 header, $4 C file, $6 object: "bad" C code is refused.
STAND_IN = (
    'echo "$4" >> compiled; if grep -q bad "$4"; then echo "no C code" >&2; exit 3; fi; cat "$4" > "$6"\n'
)
FILES = ("a.c", "b.c", "c.c")
ROWS = "hwmodels/step_times/rows.py"


class CFiles:
    """Three C files with one header, compiled by a stand-in that writes down which it was given."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder / "c", folder / "store"
        self.folder.mkdir()
        (folder / "cc.sh").write_text(STAND_IN)
        self.command = ("sh", str(folder / "cc.sh"))
        for name in ("all.h", "other.h", *FILES):
            (self.folder / name).write_text(f"{name}\n")

    def made(self, identity: str = "gcc 12") -> list[str]:
        """Compile; the files that were given to the compiler, and each object is of its C file."""
        log = self.folder / "compiled"
        log.write_text("")
        batch = Batch(FILES, "all.h", ("all.h", "other.h"))
        objects = compiled([batch], self.folder, Compiler(self.command, identity, False), self.store)
        assert {name: path.read_text() for name, path in objects.items()} == {
            name: (self.folder / name).read_text() for name in FILES
        }
        return sorted(log.read_text().split())


@pytest.fixture
def c_files(tmp_path: Path) -> CFiles:
    return CFiles(tmp_path)


def test_an_object_is_made_once(c_files: CFiles) -> None:
    assert c_files.made() == [*FILES]
    assert c_files.made() == []


def test_an_edit_makes_its_own_object_again_and_the_store_has_no_other(c_files: CFiles) -> None:
    c_files.made()
    (c_files.folder / "b.c").write_text("b.c, edited\n")
    assert c_files.made() == ["b.c"]
    assert len(list(c_files.store.iterdir())) == len(FILES)


@pytest.mark.parametrize("header", ["all.h", "other.h"])
def test_a_header_makes_all_objects_again(c_files: CFiles, header: str) -> None:
    c_files.made()
    (c_files.folder / header).write_text("edited\n")
    assert c_files.made() == [*FILES]


def test_another_compiler_or_another_option_makes_all_objects_again(c_files: CFiles) -> None:
    c_files.made()
    assert c_files.made(identity="gcc 13") == [*FILES]
    c_files.command = ("sh", "-e", c_files.command[1])
    assert c_files.made(identity="gcc 13") == [*FILES]


def test_bad_c_code_is_told_and_what_was_compiled_before_it_stays(
    c_files: CFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nativecore.objects.workers", lambda: 1)
    (c_files.folder / "c.c").write_text("bad")
    with pytest.raises(SystemExit, match=r"no C code\n(.|\n)*compiler failed \(3\).* c\.c"):
        c_files.made()
    (c_files.folder / "c.c").write_text("good")
    assert c_files.made() == ["c.c"]


def test_modules_of_one_name_are_handed_out_by_different_files(tmp_path: Path) -> None:
    modules = ["serving.kv.loads", "serving.kv.moves", "serving.parameters.loads"]
    for name in modules:
        shim = tmp_path.joinpath(*name.split(".")).with_suffix(".c")
        shim.parent.mkdir(parents=True, exist_ok=True)
        shim.write_text(f"PyInit_{name.rpartition('.')[2]} of {name} PyInit___init__")
    assert shims_together(modules, tmp_path) == {
        "modules_0.c": ["serving.kv.loads", "serving.kv.moves"],
        "modules_1.c": ["serving.parameters.loads"],
    }
    text = (tmp_path / "modules_0.c").read_text()
    assert "PyInit_loads of serving.kv.loads" in text and "PyInit_moves of serving.kv.moves" in text
    assert "#define PyInit___init__ PyInit___init__loads" in text


class Tree:
    """A tree of the modules outside of whole packages, and a build of it that compiles nothing."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.lib, self.wrong = root, root / "native" / "lib", ""
        self.identity = "gcc 12"
        for name in SINGLE:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("a = 1\n")
        monkeypatch.setattr(build, "make_library", self.make_library)
        monkeypatch.setattr(build, "tools", lambda: Tools(("cc",), ("ld",), self.identity))

    def make_library(self, modules: list[str], *, lib: Path, **_: Any) -> dict[str, str]:
        (lib / "modules_0.so").write_text((self.root / ROWS).read_text())
        if self.wrong:
            raise KeyboardInterrupt(self.wrong)
        return {"hwmodels.step_times.rows": "modules_0.so"}

    def build(self) -> bool:
        return build.build(into=self.lib, root=self.root)

    def native(self) -> str:
        """What is compiled, and nothing lies beside it."""
        assert [path.name for path in self.lib.parent.iterdir()] == ["lib"]
        assert json.loads((self.lib / BUILT_NAME).read_text())["modules"] == {
            "hwmodels.step_times.rows": "modules_0.so"
        }
        return (self.lib / "modules_0.so").read_text()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    return Tree(tmp_path, monkeypatch)


def test_nothing_is_compiled_when_nothing_has_changed(tree: Tree) -> None:
    assert (tree.build(), tree.build()) == (True, False)
    (tree.root / ROWS).write_text("a = 2\n")
    assert (tree.build(), tree.native(), tree.build()) == (True, "a = 2\n", False)


def test_another_compiler_other_settings_and_a_lost_file_count_as_a_change(tree: Tree) -> None:
    tree.build()
    tree.identity = "gcc 13"
    assert (tree.build(), tree.build()) == (True, False)
    (tree.root / "pyproject.toml").write_text("[tool.mypy]\n")
    assert (tree.build(), tree.build()) == (True, False)
    (tree.lib / "modules_0.so").unlink()
    assert (tree.build(), tree.build()) == (True, False)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"modules": ["hwmodels.step_times.rows"]}', "\0"])
def test_a_damaged_record_counts_as_a_change(tree: Tree, text: str) -> None:
    tree.build()
    (tree.lib / BUILT_NAME).write_text(text)
    assert (tree.build(), tree.build()) == (True, False)


def test_an_interrupted_build_leaves_what_was_there(tree: Tree) -> None:
    tree.wrong = "Ctrl-C"
    with pytest.raises(KeyboardInterrupt):
        tree.build()
    assert list(tree.lib.parent.iterdir()) == []
    tree.wrong = ""
    tree.build()
    (tree.root / ROWS).write_text("a = 2\n")
    tree.wrong = "Ctrl-C"
    with pytest.raises(KeyboardInterrupt):
        tree.build()
    assert tree.native() == "a = 1\n"
