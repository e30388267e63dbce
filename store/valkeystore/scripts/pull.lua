-- pull: waiting, leased, data, attempts; milliseconds of a lease.
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
return {id, tostring(attempt), redis.call('HGET', KEYS[3], id)}
