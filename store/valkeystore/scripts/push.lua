-- push: waiting, data, number, bytes; data, cost, limit.
if tonumber(redis.call('GET', KEYS[4]) or '0') + tonumber(ARGV[2]) > tonumber(ARGV[3]) then
  return 0
end
redis.call('INCRBY', KEYS[4], ARGV[2])
local id = redis.call('INCR', KEYS[3])
redis.call('HSET', KEYS[2], id, ARGV[1])
redis.call('RPUSH', KEYS[1], id)
return 1
