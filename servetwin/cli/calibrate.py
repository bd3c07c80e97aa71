"""``realexec calibrate``: measures workers, or a stock server; its arguments and its output."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from servetwin.cli.flags import asked_for_json
from servetwin.cli.own_keys import check_range, split_own
from servetwin.cli.process import tell
from servetwin.config.http_config import HTTP
from servetwin.config.overrides import Wanted

_OWN: Final = {"quick": Wanted(bool), "repeats": Wanted(int)}
_MOST_REPEATS: Final = 1000
ASYNCHRONOUS: Final = "engine.asynchronous"
_READ: Final = (
    "out", "overwrite", "config", "workers", "seed", "device", "transport", "model", "model.", "engine",
    "engine.software", "engine.version", "engine.max_num_seqs", "engine.max_num_batched_tokens",
    "engine.kv_tokens", "engine.block_tokens", "engine.reserved_blocks", "engine.gpu_memory_utilization",
    "engine.reserve_activation_bytes", "cluster", "cluster.gpu",
)  # fmt: skip
# Besides, of a server.
_READ_HTTP: Final = ("world", "http.servers", "http.model", "http.timeout_s", ASYNCHRONOUS)


def calibrate(words: Sequence[str]) -> int:
    """Calibrate; exit status 0, also for a noisy machine, which the profile records."""
    from servetwin.config.compose.compose import load_config
    from servetwin.config.compose.unread_keys import refuse_others
    from servetwin.run import calibrated
    from servetwin.run.progress import progress_bar

    words, as_json = asked_for_json(words)
    own, words = split_own(with_server(words), _OWN)
    quick = own.get("quick", False)
    repeats = own.get("repeats", calibrated.QUICK_REPEATS if quick else calibrated.REPEATS)
    check_range(f"repeats={repeats}", repeats, 1, _MOST_REPEATS)
    config = load_config(words, "realexec", alone=True)
    of_server = config.world == HTTP
    refuse_others(words, (*_READ, *_READ_HTTP) if of_server else _READ, "realexec calibrate")
    resumed = list[int]()
    with progress_bar("measuring") as on_progress:
        if of_server:
            from servetwin.run.calibrated_server import calibrate_server

            said = any(word.startswith(f"{ASYNCHRONOUS}=") for word in words)
            asynchronous = config.engine.asynchronous if said else None
            record = calibrate_server(
                config,
                quick,
                repeats,
                on_progress=on_progress,
                on_resumed=resumed.append,
                asynchronous=asynchronous,
            )
        else:
            record = calibrated.calibrate(config, quick, repeats, on_progress, resumed.append)
    lines = [
        *(f"{count} measurements of a calibration that was stopped were used" for count in resumed),
        *(server_lines_of(record) if of_server else lines_of(record)),
        f"profile in {config.out}: write {' '.join(words_of_profile(config.out, record))}",
    ]
    tell(record, lines, as_json, f"; the profile is in {config.out}")
    return 0


def with_server(words: Sequence[str]) -> list[str]:
    """Translate ``http://HOST:PORT`` to words of a run over this server."""
    urls = [word for word in words if "://" in word.partition("=")[0]]
    keys = [word for word in words if word not in urls]
    if urls:
        return ["world=http", f"http.servers=[{','.join(urls)}]", "workers=1", *keys]
    return keys


def words_of_profile(out: str, record: Mapping[str, Any]) -> list[str]:
    """The words of a run that uses the profile."""
    words = [*words_of_engine(record), f"engine.profile={out}"]
    if record.get("front_end"):
        words.append(f"engine.front_end={out}/front_end.yaml")
    return words


def words_of_engine(record: Mapping[str, Any]) -> list[str]:
    """The engine of the server that was measured, with its limits."""
    server = record.get("server", {})
    if server.get("kind") != "vllm":
        return []
    limits = [f"engine.{name}={record[name]}" for name in ("max_num_seqs", "max_num_batched_tokens")]
    asynchronous = record.get("asynchronous")
    limits += [f"{ASYNCHRONOUS}={json.dumps(asynchronous)}"] if asynchronous is not None else []
    return ["engine=vllm_v1", f"engine.version={server['version']}", *limits]


def server_lines_of(record: Mapping[str, Any]) -> list[str]:
    """Return what was measured at a server as readable lines."""
    steps, server, front = record["steps"], record["server"], record["front_end"]
    lines = [
        f"{server['kind']} {server['version']} at {server['address']}, {len(steps)} kinds of steps, "
        f"{record['took_s']:.0f} s",
        *(_step_line(name, step, "s") for name, step in _shown(steps)),
        f"  prompts are timed by {record['prompts_by']}",
    ]
    if front is not None:
        lines.append(
            f"  around the engine  {1e3 * front['way_in_s']:.2f} ms, {1e3 * front['request_s']:.2f} ms of a "
            f"process for each request, {1e6 * front['prompt_token_s']:.2f} us for each prompt token, "
            f"{1e3 * front['running_s']:.2f} ms for each request that decodes meanwhile"
        )
    return [*lines, *(f"noisy: {cause}" for cause in record["noisy"])]


def lines_of(record: Mapping[str, Any]) -> list[str]:
    """Return the results as readable lines."""
    steps, starts, quiet = record["steps"], record["starts"], record["quiet"]
    machine = record["machine"]
    lines = [
        f"{record['workers_busy']} workers busy on {machine['cores']} cores of {machine['processor']}, "
        f"{len(steps)} kinds of steps, {record['took_s']:.0f} s",
        *(_step_line(name, step) for name, step in _shown(steps)),
        f"  a worker's start  {starts['process_s']:.2f} s until its process is ready, "
        f"{starts['memory']['median_s']:.2f} s for its memory",
        f"  a message and its answer  {record['messages']['median_us']:.0f} us",
    ]
    for name, link in {**record["links"], **record["parameters"]}.items():
        rate = link.get("missing") or f"{link['median_bytes_per_s'] / 1e6:,.0f} MB/s"
        lines.append(f"  {name}  {rate}")
    ratio = quiet["wall_over_cpu"]
    shown = "is not known" if ratio is None else f"{ratio:.2f}"
    lines.append(f"  time over CPU time of the workers  {shown}")
    return [*lines, *(f"noisy: {cause}" for cause in quiet["noisy"])]


def _shown(steps: Sequence[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Select the largest prompt alone, and one and the most sequences at the shortest context."""
    prompts = [step for step in steps if step["prefill_tokens"] and not step["decode_sequences"]]
    decodes = [step for step in steps if not step["prefill_tokens"]]
    alone = [prompt for prompt in prompts if not prompt["cached_tokens"] and prompt["prefill_sequences"] == 1]
    order = sorted(decodes, key=lambda step: step["context_tokens"] // step["decode_sequences"])
    single, most = (pick(order, key=lambda step: step["decode_sequences"]) for pick in (min, max))
    largest = max(alone, key=lambda step: step["prefill_tokens"])
    return [
        (f"a prompt of {largest['prefill_tokens']} tokens", largest),
        *((f"a decode step of {step['decode_sequences']}", step) for step in (single, most)),
    ]


def _step_line(name: str, step: Mapping[str, Any], unit: str = "us") -> str:
    to_ms = {"us": 1e-3, "s": 1e3}[unit]
    middle, low, high = (step[f"{key}_{unit}"] * to_ms for key in ("median", "p10", "p90"))
    return f"  {name}  {middle:.2f} ms (p10 {low:.2f}, p90 {high:.2f})"
