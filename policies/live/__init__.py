"""Which instances serve while they load, and which instance of a pair runs which layers."""
