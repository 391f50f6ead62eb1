-- Stores a copy that was read from MongoDB, unless the copy was dropped after the read began or the
-- first key of the device can still be shown.
-- KEYS: announcement, copy, first key. ARGV: id of the announcement, copy, seconds to store the copy

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 0
end
redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[3])
return 1
