-- Lists sessions of a subject, latest expiry first: family, expiry, start, renewal and origin.
-- KEYS: families. ARGV: maximum sessions

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now_ms())
local found = {}
local families = redis.call('ZREVRANGE', KEYS[1], 0, tonumber(ARGV[1]) - 1, 'WITHSCORES')
for at = 1, #families, 2 do
  local known = redis.call('HMGET', 'tw:login:' .. families[at], 'started', 'renewed', 'origin')
  table.insert(found, {families[at], families[at + 1], known[1], known[2], known[3]})
end
return found
