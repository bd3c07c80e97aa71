"""Tests of ``hwmodels``."""
