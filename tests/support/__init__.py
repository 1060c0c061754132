"""What tests, demo and benchmarks share."""
