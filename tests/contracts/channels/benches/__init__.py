"""One module a platform, each with `BENCHES`."""
