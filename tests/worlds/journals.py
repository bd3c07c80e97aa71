"""Journals that are made in memory."""

from collections.abc import Sequence

from serving.record.journal import digest_of, footer_text, header_text


def complete_journal(header: dict[str, object], lines: Sequence[str], actions: int) -> list[str]:
    """A complete journal from its event lines."""
    text = [header_text(header), *lines]
    return [*text, footer_text(len(lines), actions, digest_of(text))]
