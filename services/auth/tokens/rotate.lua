-- Uses up a refresh token and stores the next pair. A second use within the grace period returns the
-- pair of the first use, while the refresh token of that pair is unused. Any other second use revokes
-- the family.
-- KEYS and ARGV as in issue.lua. Further KEYS: the refresh token in use, the encrypted copy of its
-- pair. Further ARGV: the encrypted pair, grace period in ms (0: none).
-- Returns the outcome, and for a repeated use the encrypted pair.

if not raise_generation(KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[7]) then
  return {'STALE'}
end
local found = redis.call('HMGET', KEYS[5], 'principal', 'used')
if not found[1] then
  return {'UNKNOWN'}
end
local next_refresh = found[2]
if next_refresh then
  local sealed = redis.call('GET', KEYS[6])
  local following = redis.call('HMGET', next_refresh, 'principal', 'used')
  if sealed and following[1] and not following[2] then
    return {'REPEATED', sealed}
  end
  drop_family(ARGV[3])
  redis.call('ZREM', KEYS[2], ARGV[3])
  return {'REUSED'}
end
redis.call('HSET', KEYS[5], 'used', KEYS[4])
store(KEYS[2], ARGV[3], KEYS[3], KEYS[4], ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5]),
  tonumber(ARGV[6]), ARGV[8])
local grace = tonumber(ARGV[10])
if grace > 0 then
  redis.call('SET', KEYS[6], ARGV[9], 'PX', grace)
  redis.call('ZADD', 'tw:family:' .. ARGV[3], now_ms() + grace, KEYS[6])
end
return {'OK'}
