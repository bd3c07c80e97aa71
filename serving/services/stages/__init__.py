"""What models in stages share: a stage, its counts, GPUs that its replicas share."""
