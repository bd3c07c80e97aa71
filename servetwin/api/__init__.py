"""What scripts and notebooks import as ``servetwin``: runs, sweeps and plans as Python objects."""
