"""llm-d's token-velocity scaler on its own ramp: replicas at each rate beside those that were observed.

Inputs: ``inputs.yaml``, token_velocity. Nothing is fitted: what the source leaves open was declared before
the first run, and the runs with another choice stand beside it.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Final

from experiments.common.figure import Figure, FigureRow, MeasuredPoint, Panel, PlotLine
from experiments.common.outcomes import Outcomes, RunOutcome
from experiments.common.set_up import Case, SetUp, Words
from experiments.common.timelines import least_and_most
from experiments.common.verdict import about, judged, within
from experiments.scalers.inputs import FOLDER, inputs, sentences, stated_of

_NAME: Final = "token velocity"
_SAVED: Final = (("inputs", _NAME),)
_OTHERS: Final[Mapping[str, Words]] = {
    "start of 100 s": ("system.instances.start_total_s=100",),
    "start of 300 s": ("system.instances.start_total_s=300",),
    "threshold of 1.5 s": ("system.scaler.threshold_s=1.5",),
}
_NETWORKS: Final = {"network at half its rate": 0.5, "network at twice its rate": 2.0}
"""One input changed, to show what the counts hang on."""


def _words() -> Words:
    stated = stated_of("token_velocity")
    least, most = stated["least_replicas"], stated["most_replicas"]
    return (
        "cluster=dgx_h100_8x2", "model=qwen3_32b", "engine=vllm_v1",
        "engine.asynchronous=false", f"engine.max_num_batched_tokens={stated['max_num_batched_tokens']}",
        f"system.instances.prefill_min={least}", f"system.instances.prefill_max={most}",
        f"system.instances.decode_min={least}", f"system.instances.decode_max={most}", "uncertainty=off",
    )  # fmt: skip


def _scaler() -> Words:
    stated, declared = stated_of("token_velocity"), inputs()["token_velocity"]["declared"]
    return (
        "system=serverlessllm", "system/scaler=token_velocity",
        f"system.scaler.prefill_tokens_per_s={stated['v_p_tokens_per_s']}",
        f"system.scaler.threshold_s={stated['prefill_threshold_s']}",
        f"system.scaler.kv_use={stated['decode_threshold']}", f"system.scaler.poll_s={stated['poll_s']}",
        f"system.scaler.tolerance={stated['tolerance']}",
        f"system.instances.start_total_s={stated['start_s']}",
        f"system.signals.scrape_s={declared['scrape_s']}", f"system.signals.window_s={declared['window_s']}",
        f"system.signals.delay_s={declared['delay_s']}",
    )  # fmt: skip


@cache
def _links(factor: float = 1.0) -> str:
    """The cluster file, with this factor on the rate of its network."""
    text = (FOLDER / "llmd_cluster.yaml").read_text(encoding="utf-8")
    rate = inputs()["token_velocity"]["derived"]["nic_gbps_per_gpu"]
    assert f"gbps: {rate:.2f}" in text, "the cluster file has another rate than the inputs"
    return text.replace(f"gbps: {rate:.2f}", f"gbps: {rate * factor:.2f}")


def _ramp() -> SetUp:
    stated = stated_of("token_velocity")
    lengths = f"{stated['prompt_tokens']}x{stated['output_tokens']}"
    trace = (
        "trace=gamma",
        "trace.gap_cv=0.001",
        f"trace.rates={stated['stages']}",
        f"trace.lengths={lengths}",
    )
    return SetUp(_NAME, _words(), trace, rate="written")


def _idle() -> Case:
    """Twenty prompts, one every 20 s, with two tokens: the second comes from the decode replica."""
    tokens = stated_of("token_velocity")["prompt_tokens"]
    trace = (
        "trace=gamma", "trace.gap_cv=0.001", "trace.rate_per_s=0.05", "trace.requests=20",
        f"trace.lengths={tokens}x2",
    )  # fmt: skip
    set_up = SetUp("idle stack", _words(), trace, rate="written")
    return Case("idle", set_up, ("system=serverlessllm",), links=_links(), once=True)


def _as_declared() -> Case:
    return Case("token_velocity", _ramp(), _scaler(), links=_links(), once=True)


def _changed() -> dict[str, Case]:
    networks = {
        name: Case(name, _ramp(), _scaler(), links=_links(factor), once=True)
        for name, factor in _NETWORKS.items()
    }
    words = {
        name: Case(name, _ramp(), (*_scaler(), *words), links=_links(), once=True)
        for name, words in _OTHERS.items()
    }
    return networks | words


def cases(_: int = 0) -> list[Case]:
    """The ramp, the ramp with one input changed, and the idle stack."""
    return [_as_declared(), *_changed().values(), _idle()]


def stages() -> list[tuple[float, float, float]]:
    """(requests per second, begin, end) of each stage of the ramp, in seconds."""
    found, at_s = [], 0.0
    for stage in stated_of("token_velocity")["stages"].strip("[]").split(","):
        rate, length = stage.split("@")
        found.append((float(rate), at_s, at_s + float(length.rstrip("s"))))
        at_s = found[-1][2]
    return found


def token_velocity(outcomes: Outcomes) -> Figure:
    """Replicas at each rate while it rises; those of the whole ramp are drawn."""
    (run,) = outcomes.of(_as_declared())
    changed = {name: outcomes.of(case)[0] for name, case in _changed().items()}
    lines = {"as declared": run, **changed}
    return Figure(
        "token_velocity",
        "Token velocity: prefill replicas on the source's ramp",
        (*_rows(run), _velocity_row(outcomes)),
        panels=(_panel("prefill", run), _panel("decode", run)),
        inputs=(*sentences("token_velocity"), *_NOTES),
        levels=tuple(_level(name, one) for name, one in lines.items()),
        sweeps={("inputs", _NAME): {name: _level(name, one) for name, one in lines.items()}},
        numbers=tuple(_numbers(run)),
    )


_NOTES: Final = (
    "counted are replicas that are ready; the table says how many were wanted at most beside them",
    "the decode replica's network is as fast as a prefill replica's, so from 0.5 requests/s on it limits: "
    "prompts then wait for their hand-over, and the prefill scaler counts them",
)


def _rows(run: RunOutcome) -> list[FigureRow]:
    observed = inputs()["token_velocity"]["observed"]
    found = []
    for (rate, begin_s, end_s), wanted_rate, least, most in zip(
        stages(), observed["rates_per_s"], observed["least"], observed["most"], strict=False
    ):
        assert rate == wanted_rate, "stages and observed rates differ"
        low, high = _between(run, "ready", begin_s, end_s)
        most_wanted = _between(run, "wanted", begin_s, end_s)[1]
        text = f"{least}" if least == most else f"{least} to {most}"
        claim = within(least, most, f"{text}, observed", "paper_number")
        row = judged(
            f"prefill replicas at {rate:g} requests/s, most", claim, high, f"{high}",
            why=f"{low} to {high} ready, {most_wanted} wanted; see the inputs",
        )  # fmt: skip
        found.append(_with_sweep(row))
    return found


def _velocity_row(outcomes: Outcomes) -> FigureRow:
    stated = stated_of("token_velocity")
    (run,) = outcomes.of(_idle())
    seconds = (run.at("e2e_ms.p50") or 0.0) / 1e3
    velocity = stated["prompt_tokens"] / seconds
    claim = about(stated["v_p_tokens_per_s"], "2,696 tokens/s, measured")
    why = f"{stated['prompt_tokens']:,} tokens over {seconds:.3f} s until the decode replica's first token"
    return _with_sweep(judged("V_P through prefill and decode", claim, velocity, f"{velocity:,.0f}", why=why))


def _with_sweep(row: FigureRow) -> FigureRow:
    return replace(row, saved=_SAVED)


def _between(run: RunOutcome, kind: str, begin_s: float, end_s: float) -> tuple[int, int]:
    """(least, most) prefill replicas."""
    at_start = stated_of("token_velocity")["prefill_at_start"]
    least, most = least_and_most(run.timelines.get(f"{kind} prefill"), begin_s, end_s)
    return at_start + least, at_start + most


def _level(name: str, run: RunOutcome) -> dict[str, str]:
    line = {"input": name}
    for number, (rate, begin_s, end_s) in enumerate(stages(), 1):
        low, high = _between(run, "ready", begin_s, end_s)
        counts = f"{low}" if low == high else f"{low} to {high}"
        line[f"{number}: {rate:g}/s"] = f"{counts} ({_between(run, 'wanted', begin_s, end_s)[1]})"
    return line


def _panel(role: str, run: RunOutcome) -> Panel:
    lines = [PlotLine("ready", *_steps(run, role))]
    if role == "prefill":
        observed = inputs()["token_velocity"]["observed"]
        for name, style in (("least", "--"), ("most", ":")):
            points = list(zip(stages(), observed[name], strict=False))
            x = [at_s for (_, begin_s, until_s), _ in points for at_s in (begin_s, until_s)]
            lines.append(
                PlotLine(f"observed, {name}", x, [float(count) for _, count in points for _ in (0, 1)], style)
            )
    return Panel(f"{role} replicas", "s", "replicas", tuple(lines))


def _steps(run: RunOutcome, role: str) -> tuple[list[float], list[float]]:
    """Ready replicas as a line of steps."""
    at_start, end_s = stated_of("token_velocity")[f"{role}_at_start"], stages()[-1][2]
    times, changes = run.timelines.get(f"ready {role}", ([0.0], [0.0]))
    x, y = list[float](), list[float]()
    for at_s, until_s, change in zip(times, [*times[1:], end_s], changes, strict=True):
        x += [float(at_s), min(float(until_s), end_s)]
        y += [at_start + float(change)] * 2
    return x, y


def _numbers(run: RunOutcome) -> list[MeasuredPoint]:
    return [
        MeasuredPoint("", f"{role} replicas", "token_velocity", at_s, (count,))
        for role in ("prefill", "decode")
        for at_s, count in zip(*_steps(run, role), strict=True)
    ]
