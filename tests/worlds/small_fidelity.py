"""``realexec fidelity`` of servers in seconds in place of minutes: the same steps, shorter."""

from collections.abc import Callable
from typing import Any

from servetwin.cli import fidelity_servers

QUICK_SCALER = fidelity_servers.SCALER | {
    "system.scaler.sync_s": "0.5", "system.scaler.stabilisation_s": "2",
    "system.signals.scrape_s": "0.25", "system.signals.window_s": "2",
}  # fmt: skip
SHORT = {"STATIC_S": 6.0, "AFTER_START_S": 12.0, "QUIET_S": 16.0, "CUT_DOWN": 2.0, "STARTS": 1,
         "SCALER": QUICK_SCALER}  # fmt: skip


def shorten(set_to: Callable[[Any, str, Any], None] = setattr) -> None:
    """Set the constants of the module."""
    for name, value in SHORT.items():
        set_to(fidelity_servers, name, value)


def main() -> None:
    """Run the shortened command."""
    from servetwin.cli.realexec import main as realexec

    shorten()
    realexec()
