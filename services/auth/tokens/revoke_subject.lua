-- Raises the generation of a subject, which deletes all tokens of earlier generations.
-- KEYS: generation, families. ARGV: generation, ms to store the generation

raise_generation(KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[2])
return 'OK'
