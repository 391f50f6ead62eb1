-- Stores the credential of a page until the tokens of its session expire.
-- KEYS: family, pages of the family, credential. ARGV: principal, maximum pages

local left = redis.call('PTTL', KEYS[1])
if left <= 0 then
  return 0
end
redis.call('SET', KEYS[3], ARGV[1], 'PX', left)
redis.call('ZADD', KEYS[2], now_ms(), KEYS[3])
redis.call('PEXPIRE', KEYS[2], left)
while redis.call('ZCARD', KEYS[2]) > tonumber(ARGV[2]) do
  redis.call('DEL', redis.call('ZPOPMIN', KEYS[2])[1])
end
return 1
