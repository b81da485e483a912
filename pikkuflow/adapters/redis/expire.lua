-- Free a lease whose holder is a dead process, or a process of a dead node (design 3.9).
--
-- KEYS[1]  the lease: "<token> <holder>"
-- ARGV[1]  the holder, or the beginning of it as whole parts divided by ":"
--
-- Answers 1, or 0 when nobody holds it or someone else does. The counter of its tokens stays.

local held = redis.call('GET', KEYS[1])
if not held then
  return 0
end
local holder = string.sub(held, string.find(held, ' ', 1, true) + 1)
local prefix = ARGV[1]
if string.sub(holder, 1, #prefix) ~= prefix then
  return 0
end
local after = string.sub(holder, #prefix + 1, #prefix + 1)
if after ~= '' and after ~= ':' and string.sub(prefix, -1) ~= ':' then
  return 0
end
return redis.call('DEL', KEYS[1])
