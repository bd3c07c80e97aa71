"""Topologies: clusters from short YAML, their links, and the paths of bytes over them."""
