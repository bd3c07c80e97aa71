"""Where parameters are: loads, copies, host caches, the parameter pool."""
