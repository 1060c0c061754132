"""What a fetch leaves behind for the ones that follow."""
