"""Servers' own counters of requests: increases over a window, restarts, percentiles within buckets."""

from hypothesis import given
from hypothesis import strategies as st

from realexec.http.metrics_text import samples_of
from realexec.http.server_counters import Counters, ServerCounters, counters_of
from serving.vocabulary.measured import Latency, Measured

OWN = Measured(Latency(7, 7, 7, 7, 7), Latency(8, 8, 8, 8, 8), finished=9, prompt_tokens=90, output_tokens=99)
LIMITS = (0.1, 0.5, 1.0)
MS = 1_000_000


def page(name: str, found: list[float], engine: int = 0) -> str:
    labels = f'engine="{engine}"'
    counts = [(str(limit), sum(one <= limit for one in found)) for limit in LIMITS] + [("+Inf", len(found))]
    rows = [f'{name}_bucket{{{labels},le="{limit}"}} {count}' for limit, count in counts]
    rows += [f"{name}_sum{{{labels}}} {sum(found)}", f"{name}_count{{{labels}}} {len(found)}"]
    return "\n".join(rows) + "\n"


def ttft(*found: float) -> Counters:
    return counters_of("vllm", samples_of(page("vllm:time_to_first_token_seconds", list(found))))


def test_the_increase_over_a_window_is_of_the_pages_read_before_its_ends() -> None:
    counters = ServerCounters()
    counters.add(0, 0, ttft(9.0))
    counters.add(0, 10, ttft(9.0, 0.2))
    counters.add(0, 20, ttft(9.0, 0.2, 0.4, 0.4))
    counters.add(0, 30, ttft(9.0, 0.2, 0.4, 0.4, 0.9))
    whole = counters.measured(OWN, 0, 25).ttft
    assert (whole.count, whole.mean_ns) == (3, round(1e9 / 3))
    assert counters.measured(OWN, 15, 40).ttft.count == 3
    assert counters.measured(OWN, 30, 40).ttft == Latency(), "nothing since"
    assert counters.measured(OWN, 30, 40).tpot == OWN.tpot, "no server counts it"


def test_percentiles_are_interpolated_within_their_bucket_as_prometheus_does() -> None:
    counters = ServerCounters()
    counters.add(0, 0, ttft())
    counters.add(0, 10, ttft(0.2, 0.3, 0.4, 0.9))
    found = counters.measured(OWN, 0, 20).ttft
    assert found.p50_ns == round((0.1 + 0.4 * 2 / 3) * 1e9)  # the second of three in (0.1, 0.5]
    assert (found.p90_ns, found.p99_ns) == (800 * MS, 980 * MS)
    counters.add(0, 30, ttft(0.2, 0.3, 0.4, 0.9, 50.0, 60.0))
    assert counters.measured(OWN, 20, 40).ttft.p99_ns == 1000 * MS, "the largest limit"


def test_a_restarted_server_counts_from_zero_and_servers_add_up() -> None:
    counters = ServerCounters()
    counters.add(0, 0, ttft(0.2, 0.2, 0.2))
    counters.add(1, 0, ttft())
    counters.add(0, 10, ttft(0.2))  # restarted, and one request since
    counters.add(1, 10, ttft(0.4, 0.4))
    assert counters.measured(OWN, 0, 20).ttft.count == 1 + 2
    counters.add(0, 30, ttft(0.2, 0.3))
    assert counters.measured(OWN, 15, 40).ttft.count == 1


def test_a_metric_counts_only_if_every_server_has_it_and_lengths_only_together() -> None:
    names = ("vllm:request_prompt_tokens", "vllm:request_generation_tokens")
    some, both = page(names[0], [8.0, 8.0]), page(names[0], [8.0, 8.0]) + page(names[1], [3.0, 4.0])
    counters = ServerCounters()
    counters.add(0, 0, counters_of("vllm", samples_of(page(names[0], []) + page(names[1], []))))
    counters.add(0, 10, counters_of("vllm", samples_of(both)))
    found = counters.measured(OWN, 0, 20)
    assert (found.finished, found.prompt_tokens, found.output_tokens) == (2, 16, 7)
    assert counters.names == sorted(names)
    counters.add(1, 10, counters_of("vllm", samples_of(some)))
    found = counters.measured(OWN, 0, 20)
    assert (found.finished, found.prompt_tokens, found.output_tokens) == (9, 90, 99)


def test_engines_of_one_server_add_up_and_the_newer_of_two_names_is_read() -> None:
    older, newer = "vllm:time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds"
    text = page(newer, [0.2], 0) + page(newer, [0.4, 0.9], 1) + page(older, [0.1])
    found = counters_of("vllm", samples_of(text))
    assert (found["tpot"].name, found["tpot"].count, found["tpot"].counts) == (newer, 3, (0, 2, 3))
    assert counters_of("openai", samples_of(text)) == {}


@given(st.text(alphabet='0123456789.-+einfNaN "{}=_lebuckt\n', max_size=200), st.integers(0, 3))
def test_damaged_pages_break_nothing(text: str, cut: int) -> None:
    counters = ServerCounters()
    name = "vllm:time_to_first_token_seconds"
    pages = [page(name, [0.2] * 3), f"{name}_sum {text}\n{name}_count {text}\n{text}", page(name, [0.3])]
    for at_ns, one in enumerate([*pages[cut:], *pages[:cut]]):
        counters.add(0, at_ns, counters_of("vllm", samples_of(one)))
        found = counters.measured(OWN, 0, at_ns + 1).ttft
        assert min(found.count, found.mean_ns, found.p50_ns, found.p99_ns) >= 0
