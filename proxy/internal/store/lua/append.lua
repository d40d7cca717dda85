-- ARGV[6..10] are fingerprint, attempt, from, life and the most bytes; the events
-- follow.
local first = 11
local attempt, from = tonumber(ARGV[7]), tonumber(ARGV[8])
local last = turn(ARGV[6])
local written, bytes = transcript()
if last == false or written == false then return {'corrupt'} end
if (last and last.attempt > attempt) or (written and written > attempt) then return {'conflict'} end

local count = math.max(redis.call('LLEN', KEYS[3]) - 1, 0)
local anew = not written or written < attempt
if not anew and from == 0 then
  local have = redis.call('LRANGE', KEYS[3], 1, #ARGV - first + 1)
  for i, event in ipairs(have) do
    if ARGV[first + i - 1] ~= event then anew = true end
  end
end
if anew then
  if from ~= 0 then return {'conflict'} end
  count, bytes = 0, 0
elseif from > count then
  return {'conflict'}
end

local skip = count - from -- events that are there already
for i = first + skip, #ARGV do bytes = bytes + #ARGV[i] end
if bytes > tonumber(ARGV[10]) then
  redis.call('DEL', KEYS[3])
  return {'conflict'}
end
local head = ARGV[7] .. ' ' .. digits(bytes)
if anew then
  redis.call('DEL', KEYS[3])
  redis.call('RPUSH', KEYS[3], head)
else
  redis.call('LSET', KEYS[3], 0, head)
end
local step = 1000 -- values that fit Lua's stack
for i = first + skip, #ARGV, step do
  redis.call('RPUSH', KEYS[3], unpack(ARGV, i, math.min(i + step - 1, #ARGV)))
end
redis.call('PEXPIRE', KEYS[3], ARGV[9])
return {'ok'}
