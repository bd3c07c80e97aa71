"""Tests of ``servetwin``."""
