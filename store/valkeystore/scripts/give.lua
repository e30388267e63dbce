-- give: key; n.
local sum = redis.call('GET', KEYS[1])
if sum then
  local rest = string.format('%.0f', math.max(tonumber(sum) - tonumber(ARGV[1]), 0))
  redis.call('SET', KEYS[1], rest, 'KEEPTTL')
end
return 1
