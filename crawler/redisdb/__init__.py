"""Redis: connections, key names, scripts, and a server of one's own where there is none."""
