"""The state x event table of every state machine, as data, and tests that play each cell against the code.

A machine is a module here with ``TITLE``, ``WHERE`` (the source file), ``STATES``, ``EVENTS`` and ``CELLS``:
(state, event) -> what happens, "refused" where the code refuses. ``python -m tests.states`` prints all
tables into docs/contributing/STATES.md.
"""
