"""Instances that work while they load: pairs of source and target, layer by layer."""
