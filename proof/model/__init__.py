"""The protocols of Shoal as data, explored breadth first."""
