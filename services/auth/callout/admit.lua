-- Admits a NATS user in one round trip, unless it is blocked or logs in too often. An MQTT client id
-- that differs from the SN is reserved for its device. Runs after the text of
-- libs/common/limits/token_bucket.lua, which defines `take`.
-- KEYS: bucket of the user's logins, its admissions, its tenant, its block. With a client id: owner
-- of the id, ids of the device by last use.
-- ARGV: logins per second, burst, admission, maximum admissions, seconds to store admissions,
-- tenant, seconds to store the tenant. With a client id: SN, id, seconds of a reservation, maximum
-- ids of a device, prefix of the key of the owner.
-- Returns {previous owner of the id (0 another device, 1 this device, 2 none), ms until the next
-- attempt or 0 if admitted, number of admissions, ids that the device lost to this id...}.
local blocked = redis.call('PTTL', KEYS[4])
if blocked > 0 then return {1, blocked, 0} end
local whose, lost = 1, {}
if KEYS[5] then
  local owner = redis.call('GET', KEYS[5])
  if owner and owner ~= ARGV[8] then return {0, 0, 0} end
  whose = owner and 1 or 2
  local clock = redis.call('TIME')
  redis.call('SET', KEYS[5], ARGV[8], 'EX', ARGV[10])
  redis.call('ZADD', KEYS[6], clock[1] + clock[2] / 1000000, ARGV[9])
  redis.call('EXPIRE', KEYS[6], ARGV[10])
  for _, id in ipairs(redis.call('ZRANGE', KEYS[6], 0, -ARGV[11] - 1)) do
    redis.call('ZREM', KEYS[6], id)
    -- The reservation may have expired, and another device may own the id.
    if redis.call('GET', ARGV[12] .. id) == ARGV[8] then
      redis.call('DEL', ARGV[12] .. id)
      table.insert(lost, id)
    end
  end
end
local granted, wait = take(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), 1)
if granted < 1 then return {whose, wait, 0, unpack(lost)} end
local kept = redis.call('LPUSH', KEYS[2], ARGV[3])
redis.call('LTRIM', KEYS[2], 0, ARGV[4] - 1)
redis.call('EXPIRE', KEYS[2], ARGV[5])
redis.call('SET', KEYS[3], ARGV[6], 'EX', ARGV[7])
return {whose, 0, kept, unpack(lost)}
