-- A device claims an MQTT client id: KEYS[1] says whose it is, KEYS[2] are the ids of the device by
-- last use. ARGV: SN, id, seconds that a claim lives, most ids of a device, prefix of KEYS[1].
-- Returns {0} when another device has the id, {1} when the device had it already, else
-- {2, ids that the device has lost for it...}.
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return {0} end
local clock = redis.call('TIME')
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[3])
redis.call('ZADD', KEYS[2], clock[1] + clock[2] / 1000000, ARGV[2])
redis.call('EXPIRE', KEYS[2], ARGV[3])
local lost = redis.call('ZRANGE', KEYS[2], 0, -ARGV[4] - 1)
for _, id in ipairs(lost) do
  redis.call('ZREM', KEYS[2], id)
  redis.call('DEL', ARGV[5] .. id)
end
return {owner and 1 or 2, unpack(lost)}
