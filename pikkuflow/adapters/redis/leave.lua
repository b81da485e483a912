-- Leave a hint: wake this run in that time. Of two hints the earlier one stays (design 4).
--
-- KEYS[1]  the sorted set of run ids by due time, in milliseconds of the epoch
-- ARGV[1]  run id
-- ARGV[2]  milliseconds from now, by the server's clock
--
-- Answers 1 when the hint is new, 0 when there was one.

local time = redis.call('TIME')
local due = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2]
return redis.call('ZADD', KEYS[1], 'LT', due, ARGV[1])
