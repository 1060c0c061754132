"""When a host may be asked: rules, and the pace that the whole fleet keeps to."""
