-- Take the hints whose time has come, by the server's clock; each is given to one caller (design 4).
--
-- KEYS[1]  the sorted set of run ids by due time, in milliseconds of the epoch
-- ARGV[1]  how many at most
--
-- Answers the run ids, the one that is due longest first.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
if #due > 0 then
  redis.call('ZREM', KEYS[1], unpack(due))
end
return due
