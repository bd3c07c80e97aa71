"""Topologies: clusters from short YAML files, their links, and the paths of bytes over them."""
