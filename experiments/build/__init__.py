"""From a configuration to the objects that run: hardware, replicas, workload, controller."""
