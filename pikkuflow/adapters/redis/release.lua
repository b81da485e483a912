-- Free a lease by compare; the counter of its tokens stays (spec 6.1).
--
-- KEYS[1]  the lease: "<token> <holder>"
-- ARGV[1]  "<token> <holder>" as it should be
--
-- Answers 1, or 0 when the lease was no longer this one.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
