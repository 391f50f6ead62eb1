-- Raises a subject to a generation, which drops every token of an earlier one.
-- KEYS: generation, families. ARGV: generation, ms to keep the generation

reach(KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[2])
return 'OK'
