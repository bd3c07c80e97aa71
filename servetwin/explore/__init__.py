"""A local page with a handful of controls that simulates again at every change (``servetwin explore``)."""
