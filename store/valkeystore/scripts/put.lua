-- put: record, ends, costs, held; version to replace, identity, data, end, writer, cost, owner,
-- group, limit. An owner and a group may hold as much as is left free.
local version = redis.call('HGET', KEYS[1], 'v') or '0'
if version ~= ARGV[1] then return 0 end
if version ~= '0' and redis.call('HGET', KEYS[1], 'k') ~= ARGV[2] then return 0 end
local old = tonumber(string.match(redis.call('HGET', KEYS[3], KEYS[1]) or '0', '^%d+'))
local grown = tonumber(ARGV[6]) - old
if grown > 0 then
  local free = tonumber(ARGV[9]) - tonumber(redis.call('HGET', KEYS[4], 'all') or '0') - grown
  for _, who in ipairs({'o' .. ARGV[7], 'g' .. ARGV[8]}) do
    if tonumber(redis.call('HGET', KEYS[4], who) or '0') + grown > free then return -1 end
  end
end
forget(KEYS[1])
redis.call('HSET', KEYS[3], KEYS[1], ARGV[6] .. ' ' .. ARGV[7] .. ' ' .. ARGV[8])
redis.call('ZADD', KEYS[2], ARGV[4], KEYS[1])
for _, who in ipairs({'o' .. ARGV[7], 'g' .. ARGV[8], 'all'}) do
  redis.call('HINCRBY', KEYS[4], who, ARGV[6])
end
local next = string.format('%.0f', tonumber(version) + 1)
redis.call('HSET', KEYS[1], 'v', next, 'k', ARGV[2], 'd', ARGV[3], 'w', ARGV[5])
redis.call('PEXPIREAT', KEYS[1], ARGV[4])
return tonumber(next)
