"""Hydra's merge of the schema, the primary file and the chosen options. The only module that loads Hydra.

Call ``option_tree`` instead: it caches the merges.
"""

import dataclasses
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.config import options
from experiments.config.config import Kind, RunConfig
from experiments.config.overrides import Override

Made = tuple[Override, Mapping[str, Any]]  # an option without a file, and what its file would say


def merged(folder: Path, kind: Kind, choices: Iterable[Override], made: Iterable[Made]) -> dict[str, Any]:
    """Plain data of the option files in ``folder``: references as text, ``???`` where a value is missing.

    Raises UserError when the files do not fit together.
    """
    store = ConfigStore.instance()
    store.store(name="run_schema", node=_mutable(RunConfig))
    for option, node in made:
        store.store(group=option.key, name=option.text, node=dict(node))
    words = [f"{choice.key}={choice.text}" for choice in choices]
    outer = GlobalHydra.instance().hydra  # a caller's own, in a notebook or a sweep
    GlobalHydra.instance().clear()
    try:
        with (
            told_in_a_sentence(),
            initialize_config_dir(str(folder), version_base="1.3", job_name="servetwin"),
        ):
            return _plain(compose(config_name=kind, overrides=words), resolve=False)
    finally:
        GlobalHydra.instance().hydra = outer


def followed(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The same data with every reference of any form that OmegaConf knows followed, or a UserError."""
    with told_in_a_sentence():
        return _plain(OmegaConf.create(dict(tree)), resolve=True)


@contextmanager
def told_in_a_sentence() -> Iterator[None]:
    """What Hydra and OmegaConf say of option files that are wrong, as a UserError."""
    try:
        yield
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise options.misfit(error) from error


def _plain(tree: Any, resolve: bool) -> dict[str, Any]:
    return typing.cast(dict[str, Any], OmegaConf.to_container(tree, resolve=resolve))


def _mutable(config_class: type) -> type:
    """The same dataclass, unfrozen: OmegaConf makes a frozen one read-only, so nothing could be merged in."""
    specs = []
    for name, hint in typing.get_type_hints(config_class).items():
        nested = dataclasses.is_dataclass(hint)
        specs.append((name, _mutable(typing.cast(type, hint)) if nested else hint))
    return dataclasses.make_dataclass(config_class.__name__, specs)
