-- forget is a part of other scripts: KEYS[2] has records by the time of their end, KEYS[3] what
-- each costs, and for which owner and group, and KEYS[4] what owners, groups and all hold.
local function forget(record)
  local cost = redis.call('HGET', KEYS[3], record)
  if not cost then return end
  local n, owner, group = string.match(cost, '^(%d+) (%S+) (%S+)$')
  for _, who in ipairs({'o' .. owner, 'g' .. group, 'all'}) do
    if redis.call('HINCRBY', KEYS[4], who, -n) <= 0 then redis.call('HDEL', KEYS[4], who) end
  end
  redis.call('HDEL', KEYS[3], record)
  redis.call('ZREM', KEYS[2], record)
end
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
for _, record in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 100)) do
  forget(record)
end
