"""One suite for every channel; `bench.py` says how a channel joins it."""
