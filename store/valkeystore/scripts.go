package valkeystore

import "github.com/redis/go-redis/v9"

// The scripts. Each is one step for the server.
var (
	// born returns the birth of the claims, a new one where the server is another.
	born = redis.NewScript(`
local b = redis.call('GET', KEYS[1])
if b and string.sub(b, 1, #ARGV[1]) == ARGV[1] then return b end
local t = redis.call('TIME')
b = ARGV[1] .. ':' .. ARGV[2] .. ':' .. t[1] .. string.format('%03d', math.floor(t[2] / 1000))
redis.call('SET', KEYS[1], b)
return b`)

	// claim: key, birth; id, milliseconds, the birth that the caller knows.
	claim = redis.NewScript(`
if redis.call('GET', KEYS[2]) ~= ARGV[3] then return -1 end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return 0`)

	release = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1`)

	// take: key; n, limit, milliseconds.
	take = redis.NewScript(`
local sum = redis.call('GET', KEYS[1])
local granted = math.max(math.min(tonumber(ARGV[1]), tonumber(ARGV[2]) - tonumber(sum or '0')), 0)
local text = string.format('%.0f', granted)
if sum then redis.call('INCRBY', KEYS[1], text)
else redis.call('SET', KEYS[1], text, 'PX', ARGV[3]) end
return granted`)

	give = redis.NewScript(`
local sum = redis.call('GET', KEYS[1])
if sum then
  local rest = string.format('%.0f', math.max(tonumber(sum) - tonumber(ARGV[1]), 0))
  redis.call('SET', KEYS[1], rest, 'KEEPTTL')
end
return 1`)

	// forget is a part of other scripts: KEYS[2] has records by the time of their end, KEYS[3] what
	// each costs, and for which owner and group, and KEYS[4] what owners, groups and all hold.
	forget = `
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
`

	// put: record, ends, costs, held; version to replace, identity, data, end, writer, cost, owner,
	// group, limit. An owner and a group may hold as much as is left free.
	put = redis.NewScript(forget + `
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
return tonumber(next)`)

	remove = redis.NewScript(forget + `
forget(KEYS[1])
return redis.call('DEL', KEYS[1])`)

	// adopt: record, key of the process that wrote it last; that process, this process.
	adopt = redis.NewScript(`
if redis.call('HGET', KEYS[1], 'w') ~= ARGV[1] then return false end
if redis.call('EXISTS', KEYS[2]) == 1 then return false end
local version = redis.call('HINCRBY', KEYS[1], 'v', 1)
redis.call('HSET', KEYS[1], 'w', ARGV[2])
return {tostring(version), redis.call('HGET', KEYS[1], 'd')}`)

	// A queue has items that wait, those that are leased by the end of their lease, data and
	// attempts by item, and the bytes of all queues.

	// push: waiting, data, number, bytes; data, cost, limit.
	push = redis.NewScript(`
if tonumber(redis.call('GET', KEYS[4]) or '0') + tonumber(ARGV[2]) > tonumber(ARGV[3]) then
  return 0
end
redis.call('INCRBY', KEYS[4], ARGV[2])
local id = redis.call('INCR', KEYS[3])
redis.call('HSET', KEYS[2], id, ARGV[1])
redis.call('RPUSH', KEYS[1], id)
return 1`)

	// pull: waiting, leased, data, attempts; milliseconds of a lease.
	pull = redis.NewScript(`
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
for _, id in ipairs(redis.call('ZREVRANGEBYSCORE', KEYS[2], now, '-inf')) do
  redis.call('ZREM', KEYS[2], id)
  redis.call('LPUSH', KEYS[1], id)
end
local id = redis.call('LPOP', KEYS[1])
if not id then return false end
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[1]), id)
local attempt = redis.call('HINCRBY', KEYS[4], id, 1)
return {id, tostring(attempt), redis.call('HGET', KEYS[3], id)}`)

	// done: waiting, leased, data, attempts, bytes; item, cost.
	done = redis.NewScript(`
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('LREM', KEYS[1], 1, ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
if redis.call('HDEL', KEYS[3], ARGV[1]) == 1 then redis.call('DECRBY', KEYS[5], ARGV[2]) end
return 1`)

	// change: waiting, leased, attempts; item, attempt, milliseconds of the new lease, 0: none.
	change = redis.NewScript(`
if redis.call('HGET', KEYS[3], ARGV[1]) ~= ARGV[2] then return 0 end
if redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then return 0 end
if ARGV[3] == '0' then redis.call('LPUSH', KEYS[1], ARGV[1]) return 1 end
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[3]), ARGV[1])
return 1`)
)
