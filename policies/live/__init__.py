"""Which instances serve while they load, and which instance runs which layers."""
