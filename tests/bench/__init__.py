"""Measurements: ratios of runs made side by side, never asserts on absolute time."""
