-- Stores the first tokens of a family, unless the verified secret was replaced meanwhile.
-- KEYS: generation, families, access token, refresh token
-- ARGV: generation, principal, family, access ms, refresh ms, maximum families, ms to store the
--       generation, origin of the login

if not raise_generation(KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[7]) then
  return {'STALE'}
end
store(KEYS[2], ARGV[3], KEYS[3], KEYS[4], ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5]),
  tonumber(ARGV[6]), ARGV[8])
return {'OK'}
