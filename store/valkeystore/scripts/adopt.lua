-- adopt: record, key of the process that wrote it last; that process, this process.
if redis.call('HGET', KEYS[1], 'w') ~= ARGV[1] then return false end
if redis.call('EXISTS', KEYS[2]) == 1 then return false end
local version = redis.call('HINCRBY', KEYS[1], 'v', 1)
redis.call('HSET', KEYS[1], 'w', ARGV[2])
return {tostring(version), redis.call('HGET', KEYS[1], 'd')}
