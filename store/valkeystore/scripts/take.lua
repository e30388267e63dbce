-- take: key; n, limit, milliseconds.
local sum = redis.call('GET', KEYS[1])
local granted = math.max(math.min(tonumber(ARGV[1]), tonumber(ARGV[2]) - tonumber(sum or '0')), 0)
local text = string.format('%.0f', granted)
if sum then redis.call('INCRBY', KEYS[1], text)
else redis.call('SET', KEYS[1], text, 'PX', ARGV[3]) end
return granted
