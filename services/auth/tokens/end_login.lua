-- Ends one log-in of a subject: 1, or 0 when the subject has no such log-in.
-- KEYS: families. ARGV: family

if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then
  return 0
end
drop_family(ARGV[1])
return 1
