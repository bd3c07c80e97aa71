"""``python -m benchmarks.transports`` exits with 1 where a pull is below 80 % of the raw rate."""

import pytest

from benchmarks import transports


@pytest.mark.parametrize(("pull_s", "status"), [(1.0, 0), (1.24, 0), (1.26, 1), (4.0, 1)])
def test_a_slow_pull_is_an_exit_status(
    pull_s: float, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of them is slow, by its median; the best of its turns is not."""

    def turns(kind: str, size: int) -> dict[str, list[float]]:
        took = pull_s if kind == "tcp" else 1.0
        return {"pull": [0.5, took, took], "raw": [1.0, 1.0, 1.0]}

    kinds = ("shared_memory", "tcp")
    monkeypatch.setattr(transports, "TRANSPORTS", dict.fromkeys(kinds))
    monkeypatch.setattr(transports, "missing", lambda: dict.fromkeys(kinds, ""))
    monkeypatch.setattr(transports, "turns", turns)
    assert transports.main([]) == status
    said = [line for line in capsys.readouterr().out.splitlines() if "less than 80% of the raw" in line]
    assert [line.split()[0] for line in said] == ["tcp"] * status
