"""Tests of ``simcore``."""
