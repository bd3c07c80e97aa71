"""A request's story so far: its stages, its stretches of decode steps, its end."""

from dataclasses import dataclass, field
from typing import Final

from servetwin.story.benches import RequestSoFar
from servetwin.story.books import Books
from servetwin.story.line import Lines, StoryLine, count, seconds
from serving.vocabulary.actions import Send

FIRST_STEPS: Final = "prompt and first decode steps"


@dataclass(slots=True)
class Decoding:
    """A stretch of decode steps on one instance: its begin, and the number of other requests."""

    began_ns: int
    fewest: int = 1 << 60
    most: int = 0
    reports: int = 0
    with_prompts: int = 0


@dataclass(slots=True, kw_only=True)
class Tale:
    """State of one request. ``first_token_ns``: from requests.parquet. ``stages_ns``: time in each stage."""

    id: int
    first_token_ns: int | None = None
    mine: RequestSoFar | None = None
    arrived_ns: int = -1
    stage: str = ""
    since_ns: int = 0
    stages_ns: dict[str, int] = field(default_factory=dict)
    decoding: Decoding | None = None
    transfers: dict[int, tuple[int, Send]] = field(default_factory=dict)
    over: bool = False

    def enter(self, stage: str, now_ns: int) -> int:
        """Begin another stage; return the time in the last one."""
        took_ns = now_ns - self.since_ns
        if self.stage:
            self.stages_ns[self.stage] = self.stages_ns.get(self.stage, 0) + took_ns
        self.stage, self.since_ns = stage, now_ns
        return took_ns


def unfinished(tale: Tale, books: Books, now_ns: int) -> Lines:
    """Report a request that is still in flight when the journal ends."""
    assert tale.mine is not None
    yield from decoded(tale, books, now_ns)
    made = count(books.made(tale.mine), "token")
    yield StoryLine(now_ns, f"the journal ends; so far the request has {made} and is {_state(tale)}")
    yield from stages(tale, now_ns)


def _state(tale: Tale) -> str:
    assert tale.mine is not None
    where = "" if tale.mine.replica is None else f" on instance {tale.mine.replica}"
    return {
        "waiting": f"waiting{where or ' for an instance'}",
        "prompt": f"in a step with its prompt{where}",
        "handed over": f"waiting{where} for its KV to be taken over",
        "joining": f"about to decode{where}",
        "decoding": f"decoding{where}",
    }.get(tale.mine.stage, "over")


def stages(tale: Tale, now_ns: int) -> Lines:
    """Report how long each stage of a request took."""
    tale.enter("", now_ns)
    parts = ", ".join(f"{name} {seconds(took)}" for name, took in tale.stages_ns.items())
    yield StoryLine(now_ns, f"in all {seconds(sum(tale.stages_ns.values()))}: {parts}")


def decodes(tale: Tale, now_ns: int, began_ns: int | None = None) -> None:
    """Begin a stretch of decode steps, now or at ``began_ns`` in an earlier run."""
    if tale.stage != "decoding":
        tale.enter("decoding", now_ns)
    tale.decoding = Decoding(tale.since_ns if began_ns is None else began_ns)


def count_report(decoding: Decoding, others: int, with_prompts: bool) -> None:
    """Count a report of steps in which the request decoded with so many others."""
    decoding.fewest, decoding.most = min(decoding.fewest, others), max(decoding.most, others)
    decoding.reports += 1
    decoding.with_prompts += with_prompts


def decoded(tale: Tale, books: Books, now_ns: int) -> Lines:
    """Report the stretch of decode steps that ends now, in one line."""
    decoding, tale.decoding = tale.decoding, None
    if decoding is None or tale.mine is None:
        return
    made = books.made(tale.mine) - tale.mine.begun
    if not made:
        return
    fewest, most = decoding.fewest, decoding.most
    among = f"among {count(most, 'other')}" if fewest == most else f"among {fewest} to {most} others"
    among = among if most else "alone"
    what = f"decoded {count(made, 'token')} after {seconds(decoding.began_ns)}, one a step, {among}"
    prompts = f", prompts of others in {decoding.with_prompts:,} of them" if decoding.with_prompts else ""
    yield StoryLine(now_ns, f"{what} ({count(decoding.reports, 'report')}{prompts})")
