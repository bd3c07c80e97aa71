"""A request's story so far: its stages, its stretches of decode steps, its end."""

from dataclasses import dataclass, field
from typing import Final

from servetwin.story.cluster_state import ClusterState, RequestProgress
from servetwin.story.line import Lines, StoryLine, count, seconds
from serving.vocabulary.actions import Send

FIRST_STEPS: Final = "prompt and first decode steps"


@dataclass(slots=True)
class DecodeStretch:
    """A stretch of decode steps on one instance: its begin, and the number of other requests."""

    began_ns: int
    fewest: int = 1 << 60
    most: int = 0
    reports: int = 0
    with_prompts: int = 0


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """State of one request. ``first_token_ns``: from requests.parquet. ``stages_ns``: time in each stage."""

    id: int
    first_token_ns: int | None = None
    mine: RequestProgress | None = None
    arrived_ns: int = -1
    stage: str = ""
    since_ns: int = 0
    stages_ns: dict[str, int] = field(default_factory=dict)
    decoding: DecodeStretch | None = None
    transfers: dict[int, tuple[int, Send]] = field(default_factory=dict)
    over: bool = False

    def enter(self, stage: str, now_ns: int) -> int:
        """Begin another stage; return the time in the last one."""
        took_ns = now_ns - self.since_ns
        if self.stage:
            self.stages_ns[self.stage] = self.stages_ns.get(self.stage, 0) + took_ns
        self.stage, self.since_ns = stage, now_ns
        return took_ns


def unfinished(record: RequestRecord, state: ClusterState, now_ns: int) -> Lines:
    """Report a request that is still in flight when the journal ends."""
    assert record.mine is not None
    yield from decoded(record, state, now_ns)
    made = count(state.made(record.mine), "token")
    yield StoryLine(now_ns, f"the journal ends; so far the request has {made} and is {_state(record)}")
    yield from stages(record, now_ns)


def _state(record: RequestRecord) -> str:
    assert record.mine is not None
    where = "" if record.mine.replica is None else f" on instance {record.mine.replica}"
    return {
        "waiting": f"waiting{where or ' for an instance'}",
        "prompt": f"in a step with its prompt{where}",
        "handed over": f"waiting{where} for its KV to be taken over",
        "joining": f"about to decode{where}",
        "decoding": f"decoding{where}",
    }.get(record.mine.stage, "over")


def stages(record: RequestRecord, now_ns: int) -> Lines:
    """Report how long each stage of a request took."""
    record.enter("", now_ns)
    parts = ", ".join(f"{name} {seconds(took)}" for name, took in record.stages_ns.items())
    yield StoryLine(now_ns, f"in all {seconds(sum(record.stages_ns.values()))}: {parts}")


def decodes(record: RequestRecord, now_ns: int, began_ns: int | None = None) -> None:
    """Begin a stretch of decode steps, now or at ``began_ns`` in an earlier run."""
    if record.stage != "decoding":
        record.enter("decoding", now_ns)
    record.decoding = DecodeStretch(record.since_ns if began_ns is None else began_ns)


def count_report(decoding: DecodeStretch, beside: int, with_prompts: bool) -> None:
    """Count a report of steps in which the request decoded beside ``beside`` other requests."""
    decoding.fewest, decoding.most = min(decoding.fewest, beside), max(decoding.most, beside)
    decoding.reports += 1
    decoding.with_prompts += with_prompts


def decoded(record: RequestRecord, state: ClusterState, now_ns: int) -> Lines:
    """Report the stretch of decode steps that ends now, in one line."""
    decoding, record.decoding = record.decoding, None
    if decoding is None or record.mine is None:
        return
    made = state.made(record.mine) - record.mine.begun
    if not made:
        return
    fewest, most = decoding.fewest, decoding.most
    among = f"among {count(most, 'other')}" if fewest == most else f"among {fewest} to {most} others"
    among = among if most else "alone"
    text = f"decoded {count(made, 'token')} after {seconds(decoding.began_ns)}, one a step, {among}"
    prompts = f", prompts of others in {decoding.with_prompts:,} of them" if decoding.with_prompts else ""
    yield StoryLine(now_ns, f"{text} ({count(decoding.reports, 'report')}{prompts})")
