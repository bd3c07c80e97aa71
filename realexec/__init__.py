"""The real world: worker processes with real tensors, driven by the wall clock and the same controller."""
