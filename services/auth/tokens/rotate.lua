-- Uses up a refresh token and stores the next pair; a second use revokes the family.
-- KEYS and ARGV as in issue.lua, then the key of the refresh token that is used.

if not reach(KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[7]) then
  return 'STALE'
end
local found = redis.call('HMGET', KEYS[5], 'principal', 'used')
if not found[1] then
  return 'UNKNOWN'
end
if found[2] then
  drop_family(ARGV[3])
  redis.call('ZREM', KEYS[2], ARGV[3])
  return 'REUSED'
end
redis.call('HSET', KEYS[5], 'used', 1)
store(KEYS[2], ARGV[3], KEYS[3], KEYS[4], ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5]),
  tonumber(ARGV[6]), ARGV[8])
return 'OK'
