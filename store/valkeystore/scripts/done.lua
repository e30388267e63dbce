-- done: waiting, leased, data, attempts, bytes; item, cost.
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('LREM', KEYS[1], 1, ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
if redis.call('HDEL', KEYS[3], ARGV[1]) == 1 then redis.call('DECRBY', KEYS[5], ARGV[2]) end
return 1
