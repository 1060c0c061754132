"""Who is alive: heartbeats and the reaping of those that fell silent."""
