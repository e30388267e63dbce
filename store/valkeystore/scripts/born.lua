-- born returns the birth of the claims, a new one where the server is another.
local b = redis.call('GET', KEYS[1])
if b and string.sub(b, 1, #ARGV[1]) == ARGV[1] then return b end
local t = redis.call('TIME')
b = ARGV[1] .. ':' .. ARGV[2] .. ':' .. t[1] .. string.format('%03d', math.floor(t[2] / 1000))
redis.call('SET', KEYS[1], b)
return b
