"""Reads by RDMA verbs: finding a usable pyverbs, queue pairs, and the transport over them."""
