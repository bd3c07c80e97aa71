"""Faults put into copies of the source, one line each: which test notices?"""
