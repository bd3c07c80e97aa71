"""Which parameters are where: loads, copies, host caches, the parameter pool."""
