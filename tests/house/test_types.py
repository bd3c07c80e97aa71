"""mypy --strict judges every package of the product, and no override takes one out."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
INSTALLED = [name.removesuffix("*") for name in SETTINGS["tool"]["setuptools"]["packages"]["find"]["include"]]
# Makes fewer errors only where torch is missing: its decorators are then unknown.
ALLOWED = {"disallow_untyped_decorators"}


def test_the_installed_packages_are_those_that_mypy_judges() -> None:
    assert SETTINGS["tool"]["mypy"]["strict"] is True
    assert sorted(SETTINGS["tool"]["mypy"]["packages"]) == sorted(INSTALLED)


@pytest.mark.parametrize("package", INSTALLED)
def test_no_override_judges_a_package_less_strictly(package: str) -> None:
    for override in SETTINGS["tool"]["mypy"]["overrides"]:
        modules = [name for name in override["module"] if name.partition(".")[0] in (package, "*")]
        assert not modules or override.keys() - {"module"} <= ALLOWED, modules


def test_every_folder_with_code_of_the_product_is_a_package_with_an_init() -> None:
    """Without one mypy -p and setuptools leave the folder out."""
    folders = {file.parent for package in INSTALLED for file in (ROOT / package).rglob("*.py")}
    assert not [str(one.relative_to(ROOT)) for one in folders if not (one / "__init__.py").exists()]
