-- Raises the access version of a tenant, but never lowers it. Returns the resulting version.
-- KEYS: version   ARGV: version

local current = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) > current then
  redis.call('SET', KEYS[1], ARGV[1])
end
return math.max(current, tonumber(ARGV[1]))
