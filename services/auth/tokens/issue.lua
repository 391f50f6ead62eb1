-- Stores the first tokens of a family, unless the secret they were asked with is out of date.
-- KEYS: generation, families, access, refresh
-- ARGV: generation, principal, family, access ms, refresh ms, limit, ms to keep the generation,
--       origin of the log-in

if not reach(KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[7]) then
  return {'STALE'}
end
store(KEYS[2], ARGV[3], KEYS[3], KEYS[4], ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5]),
  tonumber(ARGV[6]), ARGV[8])
return {'OK'}
