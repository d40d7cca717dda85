-- KEYS: board. What is over or cannot be read goes.
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then return {'ok', {}} end
local notes, all = {}, redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local till, written, value = string.match(all[i + 1], '^(%d+) (%d+) (.*)$')
  if till and now < tonumber(till) then
    notes[#notes + 1] = {all[i], value, digits(math.max(now - written, 0)), digits(till - now)}
  else
    redis.call('HDEL', KEYS[1], all[i])
  end
end
return {'ok', notes}
