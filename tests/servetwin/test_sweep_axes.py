"""From words with several values to axes."""

import pytest

from servetwin.sweeps.axes import SearchInterval, SweepAxis, axes_of
from servetwin.sweeps.points import points_of
from serving.vocabulary.errors import UserError


@pytest.mark.parametrize(
    ("word", "key", "texts"),
    [
        ("seed=0,1,2", "seed", ("0", "1", "2")),
        ("seed=range(0,3)", "seed", ("0", "1", "2")),
        ("trace.rate_per_s=range(1,2,0.5)", "trace.rate_per_s", ("1", "1.5")),
        ("trace.rate_per_s=2,4.5", "trace.rate_per_s", ("2", "4.5")),
        ("engine.max_num_seqs=1e2,64", "engine.max_num_seqs", ("100", "64")),
        ("cluster=choice(a100_x4,h100_x2)", "cluster", ("a100_x4", "h100_x2")),
        ("system/dispatch=my:Mine,random", "system/dispatch", ("my:Mine", "random")),
        ("system=glob(blitzs*)", "system", ("blitzscale",)),
        ("journal=true,false", "journal", ("true", "false")),
        ("model.tp=null,2", "model.tp", ("null", "2")),
        ("trace.path='a b.csv',c.csv", "trace.path", ("a b.csv", "c.csv")),
        ("seed=1,1,2", "seed", ("1", "2")),
    ],
)  # fmt: skip
def test_values_are_read_as_hydra_reads_them(word: str, key: str, texts: tuple[str, ...]) -> None:
    plain, axes, intervals = axes_of([word])
    assert (plain, intervals) == ([], [])
    assert axes == [SweepAxis(key, texts)]


@pytest.mark.parametrize("word", ["seed=3", "metrics='a,b'", "system/dispatch=my_policies:Mine", "x=[1,2]"])
def test_words_of_one_value_stay_as_they_are(word: str) -> None:
    assert axes_of([word]) == ([word], [], [])


def test_a_path_with_a_comma_is_one_path(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "a,b.csv"
    file.write_text("")
    assert axes_of([f"trace.path={file}"]) == ([f"trace.path={file}"], [], [])


def test_intervals_are_for_searches() -> None:
    words = [
        "engine.max_num_seqs=interval(8,64)",
        "system.x=int(interval(1,3))",
        "trace.rate_per_s=tag(log, interval(0.5,8))",
    ]
    assert axes_of(words)[2] == [
        SearchInterval("engine.max_num_seqs", 8, 64, whole=True, log=False),
        SearchInterval("system.x", 1, 3, whole=True, log=False),
        SearchInterval("trace.rate_per_s", 0.5, 8, whole=False, log=True),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["seed=0,,1"], "seed=0,,1 is no list of values"),
        (["system=glob(nothing*)"], "gives no value"),
        (["seed=glob(1*)"], "needs a group of options"),
        (["seed=0,1", "seed=2"], "seed is given twice"),
        (["trace.rate_per_s=interval(3,3)"], "is empty"),
        (["trace.rate_per_s=tag(log, interval(0,3))"], "starts above 0"),
        (["seed=range(0,1000000)"], "write at most"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(words: list[str], said: str) -> None:
    with pytest.raises(UserError, match=r"\w") as refused:
        axes_of(words)
    assert said in str(refused.value)


def test_the_last_axis_changes_fastest() -> None:
    points = points_of(
        ["trace=azure_conv_like"], [SweepAxis("system", ("a", "b")), SweepAxis("seed", ("0", "1"))]
    )
    assert [point.words[1:] for point in points] == [
        ("system=a", "seed=0"), ("system=a", "seed=1"), ("system=b", "seed=0"), ("system=b", "seed=1"),
    ]  # fmt: skip
    assert len({point.id for point in points}) == 4
    turned = points_of(
        ["trace=azure_conv_like"], [SweepAxis("seed", ("0", "1")), SweepAxis("system", ("a", "b"))]
    )
    assert {point.id for point in turned} == {point.id for point in points}, "the same runs in another order"


def test_too_many_points_are_refused() -> None:
    many = tuple(map(str, range(1000)))
    with pytest.raises(UserError, match="1000000 points"):
        points_of([], [SweepAxis("a", many), SweepAxis("b", many)])


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("seed=range(0,1000000000)", "write at most 100000"),
        ("seed=shuffle(range(0,1000000000))", "write at most 100000"),
        ("seed=sort(range(1000000000,0,-1))", "write at most 100000"),
        ("seed=range(0,1" + "0" * 400 + ")", "write at most 100000"),
        ("trace.rate_per_s=range(0,1,1e-12)", "write at most 100000"),
        ("seed=range(0,10,0)", "write range(0,10)"),
        ("seed=range(0,10,0.0)", "write range(0,10)"),
        ("seed=range(0,nan)", "write finite numbers"),
        ("seed=range(0,1e400)", "write finite numbers"),
        ("system.scaler.up=interval(0,1e400)", "write finite numbers"),
        ("seed=" + ",".join("1" * 20_000), "write at most"),
        ("seed=" + "[" * 5000 + ",", "brackets"),
        ("seed=int(1e400,2)", "no list of values"),
    ],
)
def test_a_range_without_end_is_refused_before_it_is_counted(word: str, told: str) -> None:
    with pytest.raises(UserError) as error:
        axes_of([word])
    assert word[:5] in str(error.value) and told in str(error.value) and len(str(error.value)) < 400
