"""Requests of a drawn case that repeat tokens of earlier ones."""

from dataclasses import replace
from random import Random

from serving.vocabulary.request import Request

Told = tuple[Request, int]


def sharing(requests: list[Told], random: Random, share: float = 0.8) -> list[Told]:
    """Most prompts begin as an earlier request does: its prompt, a part of it, or some of its output, too."""
    found: list[Told] = []
    for request, output in requests:
        if found and random.random() < share:
            earlier, generated = random.choice(found[-4:])
            known = earlier.prompt_tokens + min(generated, earlier.max_new_tokens)
            most = min(known, request.prompt_tokens)
            end = random.choice((most, most, random.randint(1, most)))
            request = replace(request, shared_prefix=first_tokens(earlier, end))
        found.append((request, output))
    return found


def first_tokens(request: Request, end: int) -> tuple[tuple[int, int], ...]:
    """Whose the first ``end`` tokens of this request are."""
    parts: list[tuple[int, int]] = []
    for owner, stop in (*request.shared_prefix, (request.id, end)):
        parts.append((owner, min(stop, end)))
        if stop >= end:
            break
    return tuple(parts)
