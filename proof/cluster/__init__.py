"""Shoal on a real Kubernetes, and what a bad day there does to people: `make test-cluster`."""
