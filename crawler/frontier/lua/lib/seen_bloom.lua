-- The seen filter as a scalable Bloom filter: layers (Almeida, Baquero, Preguica, Hutchison: Scalable Bloom Filters, 2007)
-- of blocks of 1,024 bits (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters, 2007), 12 probes each.
-- Keys: <base> packed list of layers {blocks, capacity, members, error}; <base>:<layer>:<segment> strings of 508 blocks.
-- A key is 16 well mixed bytes. A declared capacity is one layer with nine tenths of the error rate; layers that grow are half
-- of what is there and take 0.85 of the error of the one before, so that the sum never passes the rate.
local BLOCK, SEGMENT, FIRST, TIGHTER = 128, 508, 131072, 0.85
local WORDS = '<' .. string.rep('i4', BLOCK / 4)

-- Bits a member so that a layer at its capacity has the error rate: the formula of a plain filter with 12 probes, times what
-- the uneven load of blocks costs (fitted to the exact sum over the Poisson distribution, within 1 % from 1e-4 to 1e-7).
local function bits_for(wrong)
  local x = -math.log(wrong)
  return 12 / -math.log(1 - math.exp(-x / 12)) * (1.067 + math.max(0, x - 9.3) * 0.0165)
end

local function new_layer(layers, error_rate, declared)
  local n, total = #layers, 0
  for _, layer in ipairs(layers) do total = total + layer[2] end
  local capacity = math.max(FIRST, math.floor(total / 2))
  local share = (1 - TIGHTER) * TIGHTER ^ n
  if declared > 0 then
    share = n == 0 and 0.9 or 0.1 * (1 - TIGHTER) * TIGHTER ^ (n - 1)
    if n == 0 then capacity = declared end
  end
  local wrong = error_rate * share
  return {math.ceil(capacity * bits_for(wrong) / (BLOCK * 8)), capacity, 0, wrong}
end

-- base: key of the filter; error_rate: highest false-positive rate of all layers together; declared: capacity or 0.
local function seen_filter(base, error_rate, declared)
  local packed = redis.call('GET', base)
  local layers = packed and cmsgpack.unpack(packed) or {new_layer({}, error_rate, declared)}
  local changed = false

  -- Twelve positions from 96 bits and one step of a linear congruential generator on each third; then the block's 32 bits.
  local cached = {}
  local function positions(key)
    local at = cached[key]
    if at then return at end
    local a, b, c, d = struct.unpack('<I4I4I4I4', key)
    local e, f = (b * 1664525 + 1013904223) % 4294967296, (c * 1664525 + 1013904223) % 4294967296
    local g = (d * 1664525 + 1013904223) % 4294967296
    at = {bit.rshift(b, 22), bit.rshift(c, 22), bit.rshift(d, 22), bit.rshift(e, 22), bit.rshift(f, 22), bit.rshift(g, 22),
          bit.band(bit.rshift(b, 12), 1023), bit.band(bit.rshift(c, 12), 1023), bit.band(bit.rshift(d, 12), 1023),
          bit.band(bit.rshift(e, 12), 1023), bit.band(bit.rshift(f, 12), 1023), bit.band(bit.rshift(g, 12), 1023), a}
    cached[key] = at
    return at
  end

  local function read(layer, a)
    local block = a % layers[layer][1]
    local segment, from = base .. ':' .. layer .. ':' .. math.floor(block / SEGMENT), block % SEGMENT * BLOCK
    return redis.call('GETRANGE', segment, from, from + BLOCK - 1), segment, from
  end

  local function has(key)
    local at = positions(key)
    for layer = #layers, 1, -1 do
      local data = read(layer, at[13])
      local hits = 0
      if #data > 0 then
        while hits < 12 do
          local p = at[hits + 1]
          if bit.band(string.byte(data, bit.rshift(p, 3) + 1), bit.lshift(1, bit.band(p, 7))) == 0 then break end
          hits = hits + 1
        end
      end
      if hits == 12 then return true end
    end
    return false
  end

  local function add(key)
    if layers[#layers][3] >= layers[#layers][2] then layers[#layers + 1] = new_layer(layers, error_rate, declared) end
    local layer = layers[#layers]
    local at = positions(key)
    local data, segment, from = read(#layers, at[13])
    if #data == 0 then
      -- The last byte first: the string is made at its full size and never grows by doubling.
      local blocks = math.min(SEGMENT, layer[1] - math.floor(at[13] % layer[1] / SEGMENT) * SEGMENT)
      redis.call('SETRANGE', segment, blocks * BLOCK - 1, '\0')
      data = string.rep('\0', BLOCK)
    end
    local words = {struct.unpack(WORDS, data)}
    for i = 1, 12 do
      local p = at[i]
      local w = bit.rshift(p, 5) + 1
      words[w] = bit.bor(words[w], bit.lshift(1, bit.band(p, 31)))
    end
    words[BLOCK / 4 + 1] = nil
    redis.call('SETRANGE', segment, from, struct.pack(WORDS, unpack(words)))
    layer[3] = layer[3] + 1
    changed = true
  end

  local function save()
    if changed then redis.call('SET', base, cmsgpack.pack(layers)) end
  end

  return {has = has, add = add, save = save}
end
