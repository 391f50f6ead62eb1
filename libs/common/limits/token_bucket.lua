-- A token bucket: KEYS[1], refilled at ARGV[1] per second up to ARGV[2]; ARGV[3] are wanted,
-- fewer than none to give permits back.
-- Returns {permits granted, ms until one more is there}. The clock is the server's.
local rate, burst, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local bucket = redis.call('HMGET', KEYS[1], 'permits', 'at')
local permits, at = tonumber(bucket[1]) or burst, tonumber(bucket[2]) or now
permits = math.min(burst, permits + math.max(0, now - at) * rate / 1000)
local granted = math.min(wanted, math.floor(permits))
permits = permits - granted
redis.call('HSET', KEYS[1], 'permits', string.format('%.6f', permits), 'at', string.format('%d', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000) + 1000)
return {granted, math.max(0, math.ceil((1 - permits) / rate * 1000))}
