-- remove: record, ends, costs, held.
forget(KEYS[1])
return redis.call('DEL', KEYS[1])
