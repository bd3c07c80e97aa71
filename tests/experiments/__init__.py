"""Tests of ``experiments``."""
