-- Takes permits out of the token bucket `key`, refilled at `rate` per second up to `burst`; fewer
-- `wanted` than none gives permits back. Returns the permits granted, and the ms until one more is
-- there. The clock is the server's. The scripts that use it are this text followed by their own.
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
