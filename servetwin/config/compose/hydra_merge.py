"""Hydra's merge of the schema, the primary file and the chosen options. Only this module imports Hydra.

Call ``option_tree`` instead: it caches the merges.
"""

import dataclasses
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from servetwin.config import options
from servetwin.config.config import Kind, RunConfig
from servetwin.config.overrides import Override

Made = tuple[Override, Mapping[str, Any]]  # an option without a file, and the content of its file


def merged(
    folders: Sequence[Path], kind: Kind, choices: Iterable[Override], made: Iterable[Made]
) -> dict[str, Any]:
    """Return plain data of the option files in ``folders``: references as text, ``???`` if missing.

    The first folder is this package's and holds the file that a run begins with.

    Raises UserError if the files do not fit together.
    """
    store = ConfigStore.instance()
    store.store(name="run_schema", node=_mutable(RunConfig))
    for option, node in made:
        store.store(group=option.key, name=option.text, node=dict(node))
    words = [f"{choice.key}={choice.text}" for choice in choices]
    if len(folders) > 1:
        words.append(f"hydra.searchpath=[{','.join(map(_search_path, folders[1:]))}]")
    outer = GlobalHydra.instance().hydra  # the caller's, in a notebook or a sweep
    GlobalHydra.instance().clear()
    try:
        with (
            told_in_a_sentence(),
            initialize_config_dir(str(folders[0]), version_base="1.3", job_name="servetwin"),
        ):
            return _as_dict(compose(config_name=kind, overrides=words), resolve=False)
    finally:
        GlobalHydra.instance().hydra = outer


def _search_path(folder: Path) -> str:
    """Return a folder as a quoted text of Hydra's grammar, whatever characters its name has."""
    return "'file://{}'".format(str(folder).replace("\\", "\\\\").replace("'", "\\'"))


def followed(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve every reference in any form of OmegaConf, or raise a UserError."""
    with told_in_a_sentence():
        return _as_dict(OmegaConf.create(dict(tree)), resolve=True)


@contextmanager
def told_in_a_sentence() -> Iterator[None]:
    """Convert errors of Hydra and OmegaConf about wrong option files to a UserError."""
    try:
        yield
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise options.misfit(error) from error


def _as_dict(tree: Any, resolve: bool) -> dict[str, Any]:
    return typing.cast(dict[str, Any], OmegaConf.to_container(tree, resolve=resolve))


def _mutable(config_class: type) -> type:
    """Return the dataclass unfrozen: OmegaConf makes a frozen one read-only, which prevents a merge."""
    hints = typing.get_type_hints(config_class)
    specs: list[tuple[str, Any, Any]] = []
    for field in dataclasses.fields(config_class):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            nested = _mutable(typing.cast(type, hint))
            specs.append((field.name, nested, dataclasses.field(default_factory=nested)))
        else:
            default = MISSING if field.default is dataclasses.MISSING else field.default
            specs.append((field.name, hint, dataclasses.field(default=default)))
    return dataclasses.make_dataclass(config_class.__name__, specs)
