"""Refuses keys of a sweep or a plan that none of its runs reads."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hwmodels.errors import HardwareError
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.unread_keys import readers, refuse_if_none_reads
from servetwin.config.config import RunConfig
from servetwin.config.key import Reader
from servetwin.config.overrides import canonical
from servetwin.config.unknown_key import UnknownParameterError
from serving.vocabulary.errors import UserError
from traces.errors import TraceError

_MOST_COMPOSED: Final = 512  # in about 2 s; whether more runs read a key is not looked at

_FOLDER_KEYS: Final = ("series.period_s", "journal")
_NEVER: Final = "runs that keep a folder"
_IN_SWEEP: Final = Reader(lambda _: False, _NEVER, "write folders=true too")
_IN_PLAN: Final = Reader(lambda _: False, _NEVER, "write servetwin simulate with the answer's cluster")
_SLO: Final[dict[str, tuple[Reader, ...]]] = {
    "slo.tpot_ms": (
        Reader(
            lambda _: False,
            "slo.attainment and slo.goodput_req_per_s",
            "add slo.attainment=0.99 or write slo.tpot_p99_ms=NUMBER",
        ),
    ),
    "slo.ttft_ms": (
        Reader(
            lambda config: config.system.live.name != "none" or config.system.scales_stages,
            "slo.attainment, slo.goodput_req_per_s, system/live and stages that scale",
            "add slo.attainment=0.99 or write slo.ttft_p99_ms=NUMBER",
        ),
    ),
}


def refuse_unread_in_sweep(keys: Iterable[str], runs: Iterable[Sequence[str]], folders: bool) -> None:
    """Raise UserError for a key that no point reads. ``folders``: every point keeps its result folder."""
    without_folder = {} if folders else {"series.period_s": (_IN_SWEEP,)}
    refuse_if_none_reads(map(canonical, keys), _compose_runs(runs), "this sweep", readers() | without_folder)


def refuse_unread_in_plan(keys: Iterable[str], runs: Iterable[Sequence[str]], judges_slo: bool) -> None:
    """Raise UserError for a key that no layout reads, or that some layout's policy does not have.

    ``judges_slo``: the objective counts requests that keep slo.ttft_ms and slo.tpot_ms.
    """
    of_plan = readers() | dict.fromkeys(_FOLDER_KEYS, (_IN_PLAN,)) | ({} if judges_slo else _SLO)
    del of_plan["engine.overhead.error_s"]  # every plan runs both ends of the error of step times
    refuse_if_none_reads(map(canonical, keys), _compose_layouts(runs), "this plan", of_plan)


def _compose_layouts(runs: Iterable[Sequence[str]]) -> Iterator[RunConfig | None]:
    """Compose every layout; UserError for a parameter that a policy lacks, which no size of it would take."""
    every = list(runs)
    for words in every[:_MOST_COMPOSED]:
        try:
            load_config([*words, "out=none"], "simulate")
        except UnknownParameterError as error:
            raise UserError(f"{error}; where layouts have other words for it, plan each by itself") from error
        except (UserError, HardwareError, TraceError):
            continue  # it is reported as this layout's own
    yield from _compose_runs(every)


def _compose_runs(runs: Iterable[Sequence[str]]) -> Iterator[RunConfig | None]:
    """Yield each run's configuration; None, and no more, where one is refused or after many."""
    for count, words in enumerate(runs):
        try:
            config = load_config([*words, "out=none"], "simulate") if count < _MOST_COMPOSED else None
        except (UserError, HardwareError, TraceError):
            config = None  # it is reported as this run's own
        yield config
        if config is None:
            return
