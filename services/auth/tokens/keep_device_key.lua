-- Keeps a copy that was read from MongoDB, unless it was dropped since the read began, or the first
-- key of the device can be shown until the device logs in.
-- KEYS: the announcement, the copy, the first key. ARGV: who announced, the copy, seconds to keep it

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 0
end
redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[3])
return 1
