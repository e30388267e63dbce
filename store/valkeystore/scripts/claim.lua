-- claim: key, birth; id, milliseconds, the birth that the caller knows.
if redis.call('GET', KEYS[2]) ~= ARGV[3] then return -1 end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return 0
