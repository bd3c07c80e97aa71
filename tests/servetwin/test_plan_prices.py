"""Prices of a plan: asked for before anything runs, by GPU, in the currency that the user names."""

from pathlib import Path

import pytest

from servetwin.cli import main as cli
from servetwin.planning.plan_words import PlanWords, plan_words
from servetwin.planning.prices import price_of_word, prices_in
from serving.vocabulary.errors import UserError

TRACE = ("trace=azure_conv_like", "trace.requests=60", "trace.rate_per_s=10")
SLO = "slo.ttft_p99_ms=800"


def asked(*words: str) -> PlanWords:
    return plan_words([*TRACE, SLO, *words])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gpu=a100,h100", "find=cheapest"), "price.a100=NUMBER, price.h100=NUMBER"),
        (("gpu=a100,h100", "find=cheapest", "price.a100=1.4"), "h100 has no price: write price.h100="),
        (("gpu=a100,h100", "price.a100=1.4"), "h100 has no price: write price.h100="),
        (("gpu=dgx_h100", "price.a100=1.4"), "dgx_h100 has no price: write price.h100="),
        (("gpu=a100", "price.a100=1.4", "price.h200=3"), "price.h200 is of no GPU in this plan"),
        (("gpu=a100", "price.A1000=1.4"), "write price.a100=1.4 if that is meant"),
        (("gpu=a100", "find=rate", "gpus=4", "price.a100=1.4"), "find=rate tells no money"),
        (("gpu=a100", "price.a100=1.4EUR", "currency=USD"), "EUR and USD cannot be added"),
        (("gpu=a100,h100", "price.a100=1.4EUR", "price.h100=2USD"), "EUR and USD cannot be added"),
        (("gpu=a100,h100", "price.a100=1.4EUR", "price.h100=2"), "write currency=EUR"),
        (("gpu=a100", "currency=EUR"), "currency=EUR is of prices"),
        (("gpu=a100", "price.a100=1", "currency=money!"), "currency=money! is no currency"),
        (("gpu=a100", "price.a100=1e12"), "above 0 and below 1e+12"),
        (("gpu=a100", "price.a100=1e308"), "above 0 and below 1e+12"),
        (("gpu=a100", "price.a100=2.5%"), "price.a100"),
        (("gpu=a100", "price.a100=[2.5"), "price.a100"),
        (("gpu=a100", "price.a100=1", "currency=%"), "currency=% is no currency"),
        (("gpu=a100", "price.a100=$1EUR"), "names two currencies"),
        (("gpu=a100", "price.a100=-1"), "is no price"),
        (("gpu=a100", "price.a100=0EUR"), "is no price"),
        (("gpu=dgx_h100", "price.a100=1", "price.a100_80g=2"), "price.h100="),
        (("gpu=blitz_b", "price.a100=1", "price.a100_80g=2"), "one GPU with two prices"),
    ],
)
def test_prices_are_asked_for_before_anything_runs(
    words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("it has run")

    monkeypatch.setattr("servetwin.run.simulate.execute", never)
    assert cli.run(["plan", *TRACE, SLO, "model.tp=1", "processes=1", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_price_is_that_of_the_gpu_in_every_cluster_of_it() -> None:
    prices = asked("gpu=a100,blitz_b,a100_80g", "model.tp=1", "price.a100=1.4").prices
    assert {name: price.per_gpu_hour for name, price in prices.items()} == {
        "a100": 1.4, "blitz_b": 1.4, "a100_80g": 1.4,
    }  # fmt: skip
    own = asked("gpu=a100,blitz_b", "model.tp=1", "price.a100=1.4", "price.blitz_b=1.1").prices
    assert (own["a100"].per_gpu_hour, own["blitz_b"].per_gpu_hour) == (1.4, 1.1)


@pytest.mark.parametrize(
    ("text", "amount", "currency"),
    [("2.5", 2.5, ""), ("2.5EUR", 2.5, "EUR"), ("EUR2.5", 2.5, "EUR"), ("$2", 2.0, "$"), (".5€", 0.5, "€"),
     ("1e1", 10.0, ""), ("2.5 CHF", 2.5, "CHF")],
)  # fmt: skip
def test_the_currency_is_what_the_user_named(text: str, amount: float, currency: str) -> None:
    name, price = price_of_word("price.h100", text)
    assert (name, price.per_gpu_hour, price.currency) == ("h100", amount, currency)


def test_one_currency_holds_for_all_prices(tmp_path: Path) -> None:
    both = asked("gpu=a100,h100", "model.tp=1", "price.a100=1.4", "price.h100=2EUR", "currency=EUR")
    assert both.currency == "EUR" == both.prices["a100"].currency
    assert not asked("gpu=a100", "price.a100=1.4").currency
    file = tmp_path / "prices.yaml"
    file.write_text(
        "h100: {per_gpu_hour: 2.5, source: offer, date: 2026-11-01, currency: CHF}\n"
        "b200: {per_gpu_hour: 9, source: offer, date: 2026-11-01}\n"
    )
    found = asked("gpu=h100", f"prices={file}")
    assert found.currency == "CHF" and list(found.prices) == ["h100"], "a file may have more prices"
    assert str(found.prices["h100"]) == "2.5 CHF per GPU-hour (offer, 2026-11-01)"
    file.write_text("h100: {per_gpu_hour: 2.5, source: offer, date: 2026-11-01, curency: CHF}\n")
    with pytest.raises(UserError, match="unknown key curency"):
        prices_in(file)
    file.write_text("h100: {per_gpu_hour: .inf, source: offer, date: 2026-11-01}\n")
    with pytest.raises(UserError, match="lacks per_gpu_hour"):
        prices_in(file)


def test_the_answer_has_the_currency_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*TRACE, SLO, "gpu=a100", "model.tp=1", "processes=1", "headroom=false", "find=cheapest"]
    assert cli.run(["plan", *words, "price.a100=2EUR"]) == 0
    shown = capsys.readouterr().out
    assert " EUR per hour" in shown and "EUR/h" in shown and "2 EUR per GPU-hour" in shown
    assert cli.run(["plan", *words, "price.a100=2"]) == 0
    shown = capsys.readouterr().out
    assert "cost/h" in shown and not any(sign in shown for sign in ("EUR", "USD", "$", "€"))
