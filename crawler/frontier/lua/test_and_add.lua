--! exact seen_{filter}
-- The seen filter alone, for a scheduler of another kind: tests keys and adds those that are new, one after the other.
-- KEYS: 1 base of the filter. ARGV: 1 error rate, 2 declared capacity, then keys. Returns one character a key: '1' new, '0' seen.
local seen, new = seen_filter(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])), {}
for i = 3, #ARGV do
  local known = seen.has(ARGV[i])
  if not known then seen.add(ARGV[i]) end
  new[#new + 1] = known and '0' or '1'
end
seen.save()
return table.concat(new)
