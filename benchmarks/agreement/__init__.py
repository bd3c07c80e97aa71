"""The simulator held against other ways to the same times: closed forms, a naive engine, other simulators."""
