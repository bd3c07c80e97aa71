"""Tests of ``realexec``."""
