"""RDMA without an adapter: soft-RoCE in virtual machines that run this checkout (make test-rdma)."""
