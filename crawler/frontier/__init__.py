"""Which URL comes next: seen filter, host queues, leases, settlement and the reaper."""
