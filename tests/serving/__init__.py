"""Tests of ``serving``."""
