"""What providers, platforms and people really send: each test is a kind, each parameter an input with its right value.

`python -m tests.reports` prints a table of the kinds.
"""
