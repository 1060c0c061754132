"""Spiders of the lab, for demo, tests and benchmarks."""
