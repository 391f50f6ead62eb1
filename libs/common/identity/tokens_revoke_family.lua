-- Revokes one family.
-- KEYS: families. ARGV: family

drop_family(ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1])
return 'OK'
