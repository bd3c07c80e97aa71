"""``import servetwin as st``: the same answers as the commands, as tables."""

import doctest
import sys
from pathlib import Path
from types import ModuleType

import pytest

import servetwin as st
from servetwin.cli import main as cli
from servetwin.sweeps.outcome import outcome_of
from tests.worlds.refusals import refuses

WORDS = ("trace=azure_conv_like", "trace.requests=60", "trace.rate_per_s=20", "cluster=a100_x2")


class Last:
    """A dispatcher of the user's: always the last replica."""

    def dispatch(self, request, fleet):  # type: ignore[no-untyped-def]
        return 1, "the last one"


def test_the_first_lines_of_the_package_are_true() -> None:
    assert doctest.testmod(st).failed == 0


def test_a_run_is_that_of_the_command(tmp_path: Path) -> None:
    run = st.simulate(*WORDS, seed=3, trace__limit=50)
    assert cli.run(["simulate", *WORDS, "seed=3", "trace.limit=50", f"out={tmp_path / 'r'}"]) == 0
    saved = st.read(tmp_path / "r")
    assert saved.folder == tmp_path / "r"
    assert run.folder is None
    assert run.requests.equals(saved.requests)
    assert {**run.summary, "sim": 0} == {**saved.summary, "sim": 0}
    assert len(run.requests) == run.summary["requests"]["finished"] == 50
    assert "finished" in repr(run)
    assert len(run.plot().axes) == 2
    assert run.plot()._repr_png_().startswith(b"\x89PNG"), "what Jupyter shows"


def test_a_run_with_a_folder_leaves_its_results_there(tmp_path: Path) -> None:
    run = st.simulate(*WORDS, out=tmp_path / "r")
    assert run.folder == tmp_path / "r"
    assert (tmp_path / "r" / "report.html").read_text() == run.report


def test_a_sweep_is_two_tables(tmp_path: Path) -> None:
    found = st.sweep(
        *WORDS[:3], cluster=["a100_x1", "a100_x2"], seed=range(2), processes=1, out=tmp_path / "s"
    )
    assert list(found.table["cluster"]) == ["a100_x1", "a100_x1", "a100_x2", "a100_x2"]
    alone = outcome_of((*WORDS[:3], "cluster=a100_x2", "seed=1", "uncertainty=off"))
    assert found.table["ttft_ms.p99"].iloc[-1] == alone.numbers["ttft_ms.p99"]
    assert set(found.means["seeds"]) == {2}
    assert found.refused == {}
    opened = st.read(tmp_path / "s")
    assert opened.table.equals(found.table) and opened.means.equals(found.means) and opened.refused == {}


def test_an_opened_sweep_says_which_points_were_refused(tmp_path: Path) -> None:
    found = st.sweep(*WORDS, engine__max_num_seqs=[8, 0], processes=1, out=tmp_path / "s")
    assert list(found.refused) == ["engine.max_num_seqs=0"]
    assert st.read(tmp_path / "s").refused == found.refused
    (tmp_path / "s" / "means.csv").unlink()
    refuses(st.UserError, "is no finished sweep", st.read, tmp_path / "s")


def test_a_plan_has_its_answer_and_both_ends() -> None:
    found = st.plan(*WORDS[:3], gpu="a100", model__tp=1, slo__ttft_p99_ms=900, processes=1, headroom=False)
    assert found.low <= found.answer <= found.high
    assert found.table["gpus"].iloc[0] == found.answer
    assert str(found.answer) in found.sentence


def test_what_a_command_refuses_is_an_error_with_its_sentence() -> None:
    refuses(st.UserError, "unknown option system=vlm", st.simulate, "system=vlm")
    refuses(st.UserError, "is no word", st.simulate, "vllm")
    refuses(st.UserError, "has no results", st.read, "/")


def test_two_underscores_are_a_dot_or_the_slash_of_a_group() -> None:
    from servetwin.api.words import words_of

    values = {"trace__rate_per_s": 2.5, "system__dispatch": ["round_robin", Last], "journal": True, "x": None}
    assert words_of(["seed=1"], values) == [
        "seed=1", "trace.rate_per_s=2.5", f"system/dispatch=round_robin,{__name__}:Last", "journal=true",
        "x=null",
    ]  # fmt: skip


def test_a_class_of_the_script_runs_in_this_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    main = sys.modules["__main__"]
    mine = type("MineHere", (), {"dispatch": Last.dispatch, "__module__": "__main__"})
    monkeypatch.setattr(main, "MineHere", mine, raising=False)
    found = st.sweep(*WORDS, seed=[0, 1], system__dispatch=[mine, "round_robin"])
    assert found.refused == {}
    with pytest.raises(st.UserError, match="put it into a module"):
        st.sweep(*WORDS, seed=[0, 1], system__dispatch=mine, processes=2)


def test_a_class_that_has_no_name_is_refused() -> None:
    class Inner:
        pass

    refuses(st.UserError, "cannot be found by its name", st.simulate, system__dispatch=Inner)


def test_a_policy_of_a_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = ModuleType("a_notebook")
    cell.Last = type("Last", (), {"dispatch": Last.dispatch, "__module__": "a_notebook"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_notebook", cell)
    run = st.simulate(*WORDS, system__dispatch=cell.Last, uncertainty="off")
    assert set(run.requests["replica"]) == {1}


def test_the_version_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out.split()[1] == st.__version__
