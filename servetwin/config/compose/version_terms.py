"""Overhead and front end of an engine: by its version, by a file, or as the user writes single numbers."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Final

from hwmodels.step_times.engine_terms import engine_terms
from servetwin.config.compose.overhead_file import FRONT_END_KEY, section_file
from servetwin.config.compose.overhead_file import KEY as OVERHEAD_KEY
from servetwin.config.engine_config import WITHOUT_FRONT_END
from servetwin.config.overrides import Override, echo
from serving.vocabulary.errors import UserError

UNSET: Final = "???"
_VERSION: Final = re.compile(r"v?[0-9]+(\.[0-9]+)+[a-z0-9.+-]*", re.ASCII)
_ERRORS: Final = ("error_s", "per_sequence_error_s")


def fill_version_terms(engine: dict[str, Any], version: str | None = None) -> None:
    """Set overhead and front end of a preset that leaves them to the version, as its overhead's source says.

    ``version``: the user's word.
    """
    if engine["overhead"]["source"] != UNSET:
        return
    if version is not None and not _VERSION.fullmatch(version):
        raise UserError(
            f"engine.version={echo(version)} is no version of {engine['software']}: write numbers such as "
            f"{engine['version']}"
        )
    for section, values in engine_terms(engine["software"], version or engine["version"]).items():
        engine[section] |= values


def take_whole_sections(engine: dict[str, Any], literals: dict[str, str]) -> None:
    """Take ``engine.overhead=FILE``, ``engine.front_end=FILE`` or ``none`` out of ``literals``."""
    if (path := literals.pop(OVERHEAD_KEY, None)) is not None:
        engine["overhead"] |= section_file(OVERHEAD_KEY, path)
    if (text := literals.pop(FRONT_END_KEY, None)) is None:
        return
    if text == "none":
        engine["front_end"] |= dataclasses.asdict(WITHOUT_FRONT_END)
        return
    if not text.endswith((".yaml", ".yml")):
        raise UserError(
            f"{FRONT_END_KEY}={echo(text)} is unknown: write {FRONT_END_KEY}=none, a YAML file of realexec "
            f"calibrate, or its numbers, such as {FRONT_END_KEY}.way_out_s=0.002"
        )
    engine["front_end"] |= section_file(FRONT_END_KEY, text)


def tell_own_numbers(engine: dict[str, Any], words: Sequence[Override], overhead_path: str | None) -> None:
    """Name the command line as the source of numbers that the user wrote.

    A fitted error is that of the numbers before; a file's own error stays beside single numbers.
    """
    preset = f"engine={engine['name']}"
    for section, file in (("overhead", overhead_path), ("front_end", None)):
        prefix = f"engine.{section}."
        given = {word.key.removeprefix(prefix) for word in words if word.key.startswith(prefix)}
        if not given - {"api_server_count"}:
            continue
        instead = preset if file is None else f"{OVERHEAD_KEY}={file}"
        engine[section]["source"] = f"command line, instead of {instead}"
        if file is None:
            engine[section] |= {name: None for name in _ERRORS if name in engine[section]} | {
                name: engine[section][name] for name in given
            }
