"""Caches the list that ``--help`` of a run prints, because making it imports all of a run's modules."""

from typing import Any

from servetwin.config import options
from servetwin.config.compose.content_cache import digest_of, kept
from servetwin.config.compose.fingerprint import fingerprint
from servetwin.config.policy.installed import installed_names


def help_text(kind: str) -> str:
    """Return the text of ``key_list``. kind: simulate or realexec."""

    def made() -> str:
        from servetwin.config.compose.key_list import key_list

        return key_list("simulate" if kind == "simulate" else "realexec")

    name = digest_of(
        ["help", kind, *installed_names(), "", *fingerprint(options.CONF_DIR, *options.own_folders())]
    )
    text: str = kept(name, made, _is_text)
    return text


def _is_text(kept_value: Any) -> bool:
    """Return whether the lines are printable text without control characters."""
    return isinstance(kept_value, str) and all(map(str.isprintable, kept_value.split("\n")))
