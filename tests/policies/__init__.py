"""Tests of ``policies``."""
