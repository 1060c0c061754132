"""How records reach a backend: its contract, and the batches in which they go."""
