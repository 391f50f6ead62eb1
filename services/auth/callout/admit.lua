-- Lets a user into the bus in one round trip; follows the text of libs/common/limits/token_bucket.lua.
-- KEYS: bucket of its log-ins, its admissions, its tenant, its bar; over MQTT, with an id that is not its
-- SN: whose the id is, the ids of the device by last use.
-- ARGV: log-ins per second, most at once, admission, most admissions, seconds they are kept, tenant,
-- seconds it is kept; then SN, id, seconds that a claim lives, most ids of a device, prefix of KEYS[5].
-- Returns {whose the id was: 0 another device's, 1 its own, 2 nobody's; ms until it may log in, 0 when
-- it is let in; how many admissions it has; ids that it has lost for this one...}.
local barred = redis.call('PTTL', KEYS[4])
if barred > 0 then return {1, barred, 0} end
local whose, lost = 1, {}
if KEYS[5] then
  local owner = redis.call('GET', KEYS[5])
  if owner and owner ~= ARGV[8] then return {0, 0, 0} end
  whose = owner and 1 or 2
  local clock = redis.call('TIME')
  redis.call('SET', KEYS[5], ARGV[8], 'EX', ARGV[10])
  redis.call('ZADD', KEYS[6], clock[1] + clock[2] / 1000000, ARGV[9])
  redis.call('EXPIRE', KEYS[6], ARGV[10])
  lost = redis.call('ZRANGE', KEYS[6], 0, -ARGV[11] - 1)
  for _, id in ipairs(lost) do
    redis.call('ZREM', KEYS[6], id)
    redis.call('DEL', ARGV[12] .. id)
  end
end
local granted, wait = take(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), 1)
if granted < 1 then return {whose, wait, 0, unpack(lost)} end
local kept = redis.call('LPUSH', KEYS[2], ARGV[3])
redis.call('LTRIM', KEYS[2], 0, ARGV[4] - 1)
redis.call('EXPIRE', KEYS[2], ARGV[5])
redis.call('SET', KEYS[3], ARGV[6], 'EX', ARGV[7])
return {whose, 0, kept, unpack(lost)}
