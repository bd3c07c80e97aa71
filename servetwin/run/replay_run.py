"""servetwin replay: send the recorded events to a fresh controller, built from the run's config.yaml."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from hwmodels.reading import lines_of
from servetwin.assemble import build
from servetwin.assemble.hardware import hardware_of
from servetwin.config.compose.resolved import load_resolved
from servetwin.config.overrides import echo, parse_words
from servetwin.config.policy.groups import group_of
from servetwin.config.policy.policy_class import find_modules_here, is_class_name
from servetwin.results.journal_file import header_fields, journal_in
from servetwin.run.prepared import OUTGROWS
from serving.record.journal_lines import read_header
from serving.record.json_text import json_data
from serving.record.replay import ReplayReport, replay
from serving.vocabulary.errors import UserError
from serving.vocabulary.replica import Role


def replay_run(folder: Path, words: Sequence[str] = ()) -> ReplayReport:
    """Compare every action of ``folder``'s journal. Raises UserError if the folder cannot be replayed.

    ``words``: the run's policies from outside the package, given again by the user.
    """
    named = _policies_by_group(words)
    path = journal_in(folder, "replay")
    folder = path.parent
    if not (folder / "config.yaml").is_file():
        raise UserError(
            f"{folder} has no config.yaml: put the one beside the journal that the run wrote with it"
        )
    config = load_resolved(folder / "config.yaml", named)
    hardware = hardware_of(config)
    estimates = build.estimates_of(config, hardware)
    try:
        header = read_header(_first(next(lines_of(path, "ascii"), ""), path), str(path))
        text = (folder / "config.yaml").read_bytes().decode()  # as written, also by an earlier version
        expected = header_fields("", config.seed, text, estimates)
        for key in ("seed", "config_sha256", "estimates_sha256"):
            if header.get(key) != expected[key]:
                raise UserError(
                    f"{path}: line 1 carries another {key} than config.yaml gives: replay the two "
                    "together, as the run wrote them and with the version that ran it"
                )
        replicas = build.replicas_of(config, hardware, _start(header, path))
        longer = header.get(OUTGROWS) is True
        controller = build.controller_of(config, hardware, replicas, estimates, outgrows_expected=longer)
        return replay(lines_of(path, "ascii"), controller, str(path))
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text ({error.reason}): use a journal as it was written") from None


def _policies_by_group(words: Sequence[str]) -> dict[str, str]:
    """Map group to policy. If one is a class of the user's, add the current folder to the import path."""
    for word in words:
        if group_of(word.partition("=")[0]) is None:
            raise UserError(
                f"'{echo(word)}' cannot be changed by a replay, which takes all from the folder: write "
                "servetwin replay DIR, and behind it only policies of your own that the run had, such as "
                "system/dispatch=module:Class"
            )
    named = {word.key: word.text for word in parse_words(words)}
    if any(is_class_name(text) for text in named.values()):
        find_modules_here()
    return named


def _start(header: Mapping[str, object], path: Path) -> dict[Role, int] | None:
    """Return how many instances of each role the run began with."""
    start = header.get("start")
    if start is None:
        return None
    roles: tuple[Role, ...] = ("prefill", "decode", "both")
    if not isinstance(start, dict) or not all(
        role in roles and type(count) is int and count >= 0 for role, count in start.items()
    ):
        raise UserError(f"{path}: line 1 has the start {start!r}: use a journal as it was written")
    return {role: start[role] for role in roles if role in start}


def _first(text: str, path: Path) -> object:
    try:
        return json_data(text)
    except ValueError:
        raise UserError(
            f"{path}: the first line is not a ServeTwin journal header: use a journal as it was written"
        ) from None
