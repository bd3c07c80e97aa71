"""A model and the instances that serve it: one queue each, or prefill and decode apart."""
