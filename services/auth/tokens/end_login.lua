-- Ends a session of a subject. Returns 1, or 0 if the subject has no such session.
-- KEYS: families. ARGV: family

if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then
  return 0
end
drop_family(ARGV[1])
return 1
