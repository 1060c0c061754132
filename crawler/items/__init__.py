"""What is kept of a page: records, their keys, and the values that they can hold."""
