"""Services: each serves one model with its instances, colocated, disaggregated, in stages or on stock
engines.
"""
