"""Reads by RDMA verbs: what pyverbs is asked for, pairs of queues, and the transport over them."""
