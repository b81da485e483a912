-- Read a lease with the time at which it lapses, by the server's clock.
--
-- KEYS[1]  the lease: "<token> <holder>"
--
-- Answers {"<token> <holder>", milliseconds of the epoch}, or nil when nobody holds it.

local held = redis.call('GET', KEYS[1])
if not held then
  return false
end
local time = redis.call('TIME')
return {held, time[1] * 1000 + math.floor(time[2] / 1000) + redis.call('PTTL', KEYS[1])}
