-- Extend a lease by compare (spec 6.1).
--
-- KEYS[1]  the lease: "<token> <holder>"
-- KEYS[2]  the counter of the lease's tokens
-- ARGV[1]  "<token> <holder>" as it should be
-- ARGV[2]  milliseconds until it lapses
-- ARGV[3]  milliseconds that the counter outlives the lease
--
-- Answers the milliseconds of the epoch at which it lapses, or nil when the lease is no longer this one.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return false
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2] + ARGV[3])
local time = redis.call('TIME')
return time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2]
