"""Tests of the house itself: style, imports, documents, and the tools that look after them."""
