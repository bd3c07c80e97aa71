"""What holds for all tests: how cases are drawn, and which tests ``make draw`` repeats."""

import gc
import os
import shlex
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from scripts.browser import Browser

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # files of tests run beside each other
# Merged options, by a digest of all that they are made of: workers and the next run share them; nothing goes
# into the user's folder.
os.environ["SERVETWIN_CACHE"] = str(Path(__file__).resolve().parents[1] / ".pytest_cache" / "servetwin")
pytest.register_assert_rewrite("tests.worlds")  # its assertions say what they compared, as those of tests do

from tests.worlds import drawing  # noqa: E402

drawing.set_up_hypothesis()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of tests with real workers import torch, seconds that nobody needs who runs none of them."""
    if "not real" not in config.option.markexpr or not collection_path.name.startswith("test_"):
        return None
    return True if "\npytestmark = pytest.mark.real\n" in collection_path.read_text() else None


@pytest.fixture(scope="module")
def shown() -> Iterator["Browser"]:
    """A headless browser for the tests of a file; skipped where there is none."""
    from scripts import browser

    program = browser.installed()
    if program is None:
        pytest.skip(f"no browser here: install one of {', '.join(browser.BROWSERS)}")
    with browser.Browser(program) as opened:
        yield opened


def is_drawn(item: pytest.Item) -> bool:
    test = getattr(item, "obj", None)
    return item.get_closest_marker("drawn") is not None or getattr(test, "is_hypothesis_test", False)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """make draw runs what is drawn, file by file, in an order that is drawn as well."""
    if drawing.DRAWN_ANEW is None:
        return
    config.hook.pytest_deselected(items=[item for item in items if not is_drawn(item)])
    files = sorted({item.path for item in items})
    Random(f"files of {drawing.DRAWN_ANEW}").shuffle(files)
    items[:] = sorted(filter(is_drawn, items), key=lambda item: files.index(item.path))


def pytest_collection_finish() -> None:
    """Modules and test items stay: the collector need not look through them again and again."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    done = yield
    until_s = os.environ.get(drawing.UNTIL_VARIABLE)
    if until_s and time.time() > float(until_s) and not item.session.testsfailed:
        pytest.exit("the time is up", returncode=0)
    return done


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How to see a failure of ``make draw`` again."""
    if drawing.DRAWN_ANEW is None:
        return
    for report in terminalreporter.stats.get("failed", []) + terminalreporter.stats.get("error", []):
        test = shlex.quote(report.nodeid.partition("[")[0])
        terminalreporter.write_line(f"again: make draw SEED={drawing.DRAWN_ANEW} TESTS={test}")
