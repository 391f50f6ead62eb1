-- Functions of the token scripts, which begin with this text.
--
-- Invariant: every token of a subject belongs to the generation that Redis stores for the subject.
-- Two sorted sets, scored by expiry in ms, list the token keys: `tw:families:{subject}` contains
-- family ids, `tw:family:{id}` the keys of a family's tokens. `tw:pages:{id}`, scored by time of
-- creation, contains the credentials of pages with live updates; they expire with the family. For
-- users, `tw:login:{id}` stores when a session began, and time and origin of its latest renewal.

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function drop_family(family)
  for _, key in ipairs({'tw:family:' .. family, 'tw:pages:' .. family}) do
    for _, token in ipairs(redis.call('ZRANGE', key, 0, -1)) do
      redis.call('DEL', token)
    end
    redis.call('DEL', key)
  end
  redis.call('DEL', 'tw:login:' .. family)
end

local function keep_pages(family, keep_ms)
  local key = 'tw:pages:' .. family
  for _, credential in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    redis.call('PEXPIRE', credential, keep_ms)
  end
  redis.call('PEXPIRE', key, keep_ms)
end

-- Raises a subject to `generation` and deletes older tokens; returns false if it is already higher.
local function raise_generation(generation_key, families, generation, keep_ms)
  local current = tonumber(redis.call('GET', generation_key) or '0')
  if current > generation then
    return false
  end
  if current < generation then
    for _, family in ipairs(redis.call('ZRANGE', families, 0, -1)) do
      drop_family(family)
    end
    redis.call('DEL', families)
  end
  redis.call('SET', generation_key, generation, 'PX', keep_ms)
  return true
end

-- Stores when a session began, and time and origin of its latest renewal.
local function keep_login(family, origin, keep_ms)
  local key = 'tw:login:' .. family
  local at = now_ms()
  redis.call('HSETNX', key, 'started', at)
  redis.call('HSET', key, 'renewed', at, 'origin', origin)
  redis.call('PEXPIRE', key, keep_ms)
end

-- Stores a pair of tokens. Beyond `limit` families, deletes the family that expires first.
-- An empty `origin` is not stored.
local function store(families, family, access, refresh, principal, access_ms, refresh_ms, limit,
    origin)
  local now = now_ms()
  local key = 'tw:family:' .. family
  local longest = math.max(access_ms, refresh_ms)
  redis.call('SET', access, principal, 'PX', access_ms)
  redis.call('HSET', refresh, 'principal', principal)
  redis.call('PEXPIRE', refresh, refresh_ms)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  redis.call('ZADD', key, now + access_ms, access, now + refresh_ms, refresh)
  redis.call('PEXPIRE', key, longest)
  keep_pages(family, longest)
  if origin ~= '' then
    keep_login(family, origin, longest)
  end
  redis.call('ZREMRANGEBYSCORE', families, '-inf', now)
  redis.call('ZADD', families, now + longest, family)
  redis.call('PEXPIRE', families, longest)
  while redis.call('ZCARD', families) > limit do
    drop_family(redis.call('ZPOPMIN', families)[1])
  end
end
