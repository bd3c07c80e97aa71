"""Figures for papers from what commands wrote: runs, sweeps and reproductions, as PDF, SVG or PNG."""
