-- The seen filter without false positives: a set of 63-bit fingerprints.
local function seen_filter(base) return exact_set(base) end
