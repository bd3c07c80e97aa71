"""A model and the instances that serve it: one queue per instance, or prefill and decode on separate ones."""
