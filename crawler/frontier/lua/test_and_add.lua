--! exact seen_{filter}
-- The seen filter alone, for a scheduler of another kind: tests keys and adds those that are new.
-- KEYS: 1 base of the filter. ARGV: 1 error rate, 2 declared capacity, then keys. Returns one character a key: '1' new, '0' seen.
local seen, new, here, fresh = seen_filter(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])), {}, {}, {}
for i = 3, #ARGV do
  local key = ARGV[i]
  local known = here[key] or seen.has(key)
  if not known then fresh[#fresh + 1] = key end
  here[key] = true
  new[#new + 1] = known and '0' or '1'
end
for _, key in ipairs(fresh) do seen.add(key) end
seen.save()
return table.concat(new)
