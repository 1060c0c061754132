-- Seen test and enqueueing of entries in one step. The list has five fields an entry: host, band, seen key, instance key, element.
--   instance key ''  the entry is new unless its seen key is in the filter
--   instance key set the entry is new unless this very instance was put before; its seen key, if any, is only recorded
--   element ''       nothing is queued (a redirect's target, fetched under the lease of its page): the entry is new unless its
--                    seen key is in the filter and was not put there by this very instance, whose worker may have died since
-- After the entries may come one list of budgets, five fields each: number of the entry, name, URLs that it may have, URLs from
-- which on an entry goes into another band, that band. An entry over a budget is neither queued nor seen.
-- Returns one character an entry, how many were queued, and how many known: to count those is the caller's, which may have
-- to free memory first. All is read before the first write; entries are queued before they are marked, so that an error loses none.
local function put_entries(list, seen, once, at)
  local budgets, spent, over, repeated = {}, {}, 0, 0
  if type(list[#list]) == 'table' then
    local given = table.remove(list)
    for i = 1, #given, 5 do
      local of_entry = budgets[given[i]] or {}
      budgets[given[i]] = of_entry
      of_entry[#of_entry + 1] = {given[i + 1], given[i + 2], given[i + 3], given[i + 4]}
    end
  end

  -- The band of an entry that none of its budgets refuses, or nil; it is counted then.
  local function afforded(number, band)
    local of_entry = budgets[number] or {}
    for _, budget in ipairs(of_entry) do
      local name = budget[1]
      spent[name] = spent[name] or {0, tonumber(redis.call('HGET', SPENT, name) or 0)}
      local count = spent[name][1] + spent[name][2]
      if count >= budget[2] then return nil end
      if count >= budget[3] then band = budget[4] end
    end
    for _, budget in ipairs(of_entry) do spent[budget[1]][1] = spent[budget[1]][1] + 1 end
    return band
  end

  local new, queues, queued, mark_seen, mark_once, seen_here, once_here = {}, {}, 0, {}, {}, {}, {}
  for a = 1, #list, 5 do
    local host, key, instance, element = list[a], list[a + 2], list[a + 3], list[a + 4]
    local known
    if instance == '' then
      known = seen_here[key] or seen.has(key)
    elseif element ~= '' then
      known = once_here[instance] or once.has(instance)
    else
      known = once_here[instance] or ((seen_here[key] or seen.has(key)) and not once.has(instance))
    end
    local band = list[a + 1]
    if not known and element ~= '' then band = afforded(#new + 1, band) end
    if not band then
      over = over + 1
      new[#new + 1] = '2'
    else
      new[#new + 1] = known and '0' or '1'
      if known and element ~= '' then repeated = repeated + 1 end
    end
    if not known and band then
      if key ~= '' and not seen_here[key] and (instance == '' or not seen.has(key)) then
        mark_seen[#mark_seen + 1] = key
      end
      seen_here[key] = true
      if instance ~= '' then
        mark_once[#mark_once + 1] = instance
        once_here[instance] = true
      end
      if element ~= '' then
        local bands = queues[host]
        if not bands then
          bands = {}
          queues[host] = bands
        end
        local elements = bands[band]
        if elements then
          elements[#elements + 1] = element
        else
          bands[band] = {element}
        end
        queued = queued + 1
      end
    end
  end
  if queued > 0 then push_all(queues, queued, at) end
  for name, count in pairs(spent) do
    if count[1] > 0 then redis.call('HINCRBY', SPENT, name, count[1]) end
  end
  if over > 0 then redis.call('HINCRBY', COUNTERS, 'over_budget', over) end
  for _, key in ipairs(mark_seen) do seen.add(key) end
  for _, key in ipairs(mark_once) do once.add(key) end
  seen.save()
  once.save()
  if #mark_seen > 0 then redis.call('HINCRBY', COUNTERS, 'seen', #mark_seen) end
  if queued > 0 then
    redis.call('HINCRBY', COUNTERS, 'put', queued)
    redis.call('HSET', STATE, 'phase', 'open', 'active', at, 'time', text(us))
    wake()
  end
  return table.concat(new), queued, repeated
end
