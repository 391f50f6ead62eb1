-- Takes permits from the token bucket `key`, which is refilled at `rate` per second up to `burst`.
-- A negative `wanted` returns permits. Returns the number of granted permits, and the ms until the
-- next one. The clock is that of the server. Other scripts begin with this text.
local function take(key, rate, burst, wanted)
  local clock = redis.call('TIME')
  local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
  local bucket = redis.call('HMGET', key, 'permits', 'at')
  local permits, at = tonumber(bucket[1]) or burst, tonumber(bucket[2]) or now
  permits = math.min(burst, permits + math.max(0, now - at) * rate / 1000)
  local granted = math.min(wanted, math.floor(permits))
  permits = permits - granted
  redis.call('HSET', key, 'permits', string.format('%.6f', permits), 'at', string.format('%d', now))
  redis.call('PEXPIRE', key, math.ceil(burst / rate * 1000) + 1000)
  return granted, math.max(0, math.ceil((1 - permits) / rate * 1000))
end
