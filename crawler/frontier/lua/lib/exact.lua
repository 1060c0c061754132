-- Sets of 63-bit integers that stay in Redis's compact form: linear hashing (Litwin: Linear Hashing, 1980) over small
-- integer sets, each split before it outgrows set-max-intset-entries. Keys: <base> packed {members, level, next to split};
-- <base>:<bucket> sets. A key is its decimal text.
local function decimal(number) return string.format('%.0f', number) end
local BUCKETS, LOAD = 8, 180

local function exact_set(base)
  local packed = redis.call('GET', base)
  local meta = packed and cmsgpack.unpack(packed) or {0, 0, 0}
  local changed = false

  local function modulo(key, m)
    local low = tonumber(string.sub(key, -9))
    local high = tonumber(string.sub(key, 1, -10)) or 0
    return ((high % m) * (1000000000 % m) + low) % m
  end

  local function bucket(key)
    local m = BUCKETS * 2 ^ meta[2]
    local at = modulo(key, m)
    if at < meta[3] then at = modulo(key, 2 * m) end
    return base .. ':' .. decimal(at)
  end

  local function split()
    local m = BUCKETS * 2 ^ meta[2]
    local from, to, moved = base .. ':' .. decimal(meta[3]), base .. ':' .. decimal(meta[3] + m), {}
    for _, key in ipairs(redis.call('SMEMBERS', from)) do
      if modulo(key, 2 * m) ~= meta[3] then moved[#moved + 1] = key end
    end
    if #moved > 0 then
      redis.call('SADD', to, unpack(moved))
      redis.call('SREM', from, unpack(moved))
    end
    meta[3] = meta[3] + 1
    if meta[3] == m then meta[2], meta[3] = meta[2] + 1, 0 end
  end

  local function add(key)
    meta[1] = meta[1] + redis.call('SADD', bucket(key), key)
    changed = true
    if meta[1] > (BUCKETS * 2 ^ meta[2] + meta[3]) * LOAD then split() end
  end

  return {
    has = function(key) return redis.call('SISMEMBER', bucket(key), key) == 1 end,
    add = add,
    save = function() if changed then redis.call('SET', base, cmsgpack.pack(meta)) end end,
  }
end
