-- The seen filter as a scalable Bloom filter: layers (Almeida, Baquero, Preguica, Hutchison: Scalable Bloom Filters, 2007)
-- of blocks of 512 bits (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters, 2007), 10 probes each.
-- Keys: <base> packed list of layers {blocks, capacity, members, error}; <base>:<layer>:<segment> strings of 1,016 blocks.
-- A key is 16 well mixed bytes. A declared capacity is one layer with nine tenths of the error rate; layers that grow are half
-- of what is there and take 0.85 of the error of the one before, so that the sum never passes the rate.
local BLOCK, SEGMENT, FIRST, TIGHTER = 64, 1016, 131072, 0.85
local band, bor, lshift, rshift, byte = bit.band, bit.bor, bit.lshift, bit.rshift, string.byte
local WORDS = '<' .. string.rep('i4', BLOCK / 4)

-- Bits a member so that a layer at its capacity has the error rate: the formula of a plain filter with 10 probes, times what
-- the uneven load of blocks costs (fitted to the exact sum over the Poisson distribution, within 1 % from 1e-4 to 2e-7).
local function bits_for(wrong)
  local x = -math.log(wrong)
  local over = math.max(0, x - 9.32)
  return 10 / -math.log(1 - math.exp(-x / 10)) * (1.127 + 0.0245 * over + 0.00145 * over * over)
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

  -- Ten positions of nine bits from 96 bits and one step of a linear congruential generator; then the 32 bits that choose the
  -- block, and what has() read of the newest layer and which that was.
  local cached = {}
  local function positions(key)
    local at = cached[key]
    if at then return at end
    local a, b, c, d = struct.unpack('<I4I4I4I4', key)
    at = {rshift(b, 23), rshift(c, 23), rshift(d, 23), band(rshift(b, 14), 511), band(rshift(c, 14), 511),
          band(rshift(d, 14), 511), band(rshift(b, 5), 511), band(rshift(c, 5), 511), band(rshift(d, 5), 511),
          rshift((b * 1664525 + 1013904223) % 4294967296, 23), a, '', 0}
    cached[key] = at
    return at
  end

  local names = {}
  local function segment(layer, block)
    local from = block % SEGMENT
    local number = (block - from) / SEGMENT
    local of_layer = names[layer]
    if not of_layer then
      of_layer = {}
      names[layer] = of_layer
    end
    local name = of_layer[number]
    if not name then
      name = base .. ':' .. layer .. ':' .. number
      of_layer[number] = name
    end
    return name, from * BLOCK
  end

  local function has(key)
    local at = positions(key)
    for layer = #layers, 1, -1 do
      local name, from = segment(layer, at[11] % layers[layer][1])
      local data = redis.call('GETRANGE', name, from, from + BLOCK - 1)
      if layer == #layers then at[12], at[13] = data, layer end
      local hits = 0
      if #data > 0 then
        while hits < 10 do
          local p = at[hits + 1]
          if band(byte(data, rshift(p, 3) + 1), lshift(1, band(p, 7))) == 0 then break end
          hits = hits + 1
        end
      end
      if hits == 10 then return true end
    end
    return false
  end

  -- Blocks of the newest layer that were changed, as words; save() writes them.
  local dirty = {}
  local function flush()
    for block, words in pairs(dirty) do
      local name, from = segment(#layers, block)
      redis.call('SETRANGE', name, from, struct.pack(WORDS, unpack(words, 1, BLOCK / 4)))
    end
    dirty = {}
  end

  local function words_of(at, block)
    local name, from = segment(#layers, block)
    local data = at[13] == #layers and at[12] or redis.call('GETRANGE', name, from, from + BLOCK - 1)
    if #data > 0 then return {struct.unpack(WORDS, data)} end
    -- The last byte first: the string is made at its full size and never grows by doubling.
    local blocks = math.min(SEGMENT, layers[#layers][1] - math.floor(block / SEGMENT) * SEGMENT)
    redis.call('SETRANGE', name, blocks * BLOCK - 1, '\0')
    return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
  end

  -- All has() of a script come before its first add().
  local function add(key)
    if layers[#layers][3] >= layers[#layers][2] then
      flush()
      layers[#layers + 1] = new_layer(layers, error_rate, declared)
    end
    local layer = layers[#layers]
    local at = positions(key)
    local block = at[11] % layer[1]
    local words = dirty[block]
    if not words then
      words = words_of(at, block)
      dirty[block] = words
    end
    for i = 1, 10 do
      local p = at[i]
      local w = rshift(p, 5) + 1
      words[w] = bor(words[w], lshift(1, band(p, 31)))
    end
    layer[3] = layer[3] + 1
  end

  local function save()
    if next(dirty) then
      flush()
      redis.call('SET', base, cmsgpack.pack(layers))
    end
  end

  return {has = has, add = add, save = save}
end
