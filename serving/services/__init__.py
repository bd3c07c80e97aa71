"""Services: each serves one model, colocated, disaggregated, in stages or on stock engines."""
