-- Seen test and enqueueing of entries in one step. Five arguments an entry: host, band, seen key, instance key, body.
--   instance key ''  the entry is new unless its seen key is in the filter
--   instance key set the entry is new unless this very instance was put before; its seen key, if any, is only recorded
--   body ''          nothing is queued (a redirect's target, fetched under the lease of its page): the entry is new unless its seen
--                    key is in the filter and was not put there by this very instance, whose worker may have died since
-- All is read before the first write; entries are queued before they are marked, so that an error loses none.
local function put_entries(first, count, seen, once, at)
  local new, lists, order, mark_seen, mark_once, here = {}, {}, {}, {}, {}, {}
  for i = 0, count - 1 do
    local a = first + i * 5
    local host, band, key, instance, body = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4]
    local mine = instance ~= '' and 'i' .. instance or 's' .. key
    local known = here[mine]
    if not known then
      if instance == '' then
        known = seen.has(key)
      elseif body ~= '' then
        known = once.has(instance)
      else
        known = (here['s' .. key] or seen.has(key)) and not once.has(instance)
      end
    end
    new[i + 1] = known and '0' or '1'
    if not known then
      if key ~= '' and not here['s' .. key] and (instance == '' or not seen.has(key)) then
        mark_seen[#mark_seen + 1] = key
      end
      if instance ~= '' then mark_once[#mark_once + 1] = instance end
      here[mine], here['s' .. key] = true, true
      if body ~= '' then
        local name = queue_key(host, band)
        if not lists[name] then
          lists[name] = {host, band, {}}
          order[#order + 1] = lists[name]
        end
        table.insert(lists[name][3], fresh(body))
      end
    end
  end
  local queued = 0
  for _, list in ipairs(order) do
    push(list[1], list[2], list[3], at, false)
    queued = queued + #list[3]
  end
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
  return table.concat(new), queued
end
