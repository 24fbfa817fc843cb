"""Workspaces in an S3 store: each worker works on a local copy of them."""
