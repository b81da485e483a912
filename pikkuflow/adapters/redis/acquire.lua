-- Take a free lease, or extend one's own (spec 6.1, D19).
--
-- KEYS[1]  the lease: "<token> <holder>", gone when it lapses
-- KEYS[2]  the counter of the lease's tokens
-- ARGV[1]  holder
-- ARGV[2]  milliseconds until it lapses
-- ARGV[3]  milliseconds that the counter outlives the lease
--
-- Answers {token, milliseconds of the epoch at which it lapses}, or nil when someone else holds it.

local held = redis.call('GET', KEYS[1])
local token
if held then
  local space = string.find(held, ' ', 1, true)
  if string.sub(held, space + 1) ~= ARGV[1] then
    return false
  end
  token = tonumber(string.sub(held, 1, space - 1))
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
  token = redis.call('INCR', KEYS[2])
  redis.call('SET', KEYS[1], token .. ' ' .. ARGV[1], 'NX', 'PX', ARGV[2])
end
redis.call('PEXPIRE', KEYS[2], ARGV[2] + ARGV[3])
local time = redis.call('TIME')
return {token, time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2]}
