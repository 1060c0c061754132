"""Ready spiders, and examples to start from."""
