-- The log-ins of a subject that last longest: id, end, and what is remembered of where it began.
-- KEYS: families. ARGV: most log-ins

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now_ms())
local found = {}
local families = redis.call('ZREVRANGE', KEYS[1], 0, tonumber(ARGV[1]) - 1, 'WITHSCORES')
for at = 1, #families, 2 do
  local known = redis.call('HMGET', 'tw:login:' .. families[at], 'started', 'renewed', 'origin')
  table.insert(found, {families[at], families[at + 1], known[1], known[2], known[3]})
end
return found
