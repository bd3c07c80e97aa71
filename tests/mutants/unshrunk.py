"""A pytest plugin: hypothesis stops at the first failing example, for that it fails is all that is asked."""

from hypothesis import Phase, settings


def pytest_configure() -> None:
    """After conftest.py, whose settings it keeps, and before any test is imported."""
    settings.register_profile(
        "unshrunk", settings.default, phases=[Phase.explicit, Phase.generate, Phase.target]
    )
    settings.load_profile("unshrunk")
