-- ARGV[6..12] are fingerprint, attempt, stage, delivered, json, life and the most
-- turns of a key.
local attempt, stage, delivered, begun = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9], now
local last, written = turn(ARGV[6]), transcript()
if last == false or written == false then return {'corrupt'} end
if last then
  if last.attempt > attempt then return {'conflict'} end
  if last.attempt == attempt then
    if last.stage == 3 and last.json ~= ARGV[10] then return {'conflict'} end
    if stage < last.stage then return {'ok'} end
    begun = last.begun
    if last.delivered == '1' then delivered = '1' end
  end
elseif redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[12]) then
  local all = redis.call('HGETALL', KEYS[2])
  local victim, least
  for i = 1, #all, 2 do
    local since, s = string.match(all[i + 1], '^%d+ (%d+) %d+ (%d)')
    if not since then return {'corrupt'} end
    -- A final one goes first, then the one begun first.
    local rank = tonumber(since) + (s == '3' and 0 or 2 ^ 52)
    if not least or rank < least then victim, least = all[i], rank end
  end
  redis.call('HDEL', KEYS[2], victim)
end
if written and written < attempt then redis.call('DEL', KEYS[3]) end
redis.call('HSET', KEYS[2], ARGV[6],
  digits(now + ARGV[11]) .. ' ' .. digits(begun) .. ' ' .. ARGV[7] .. ' ' .. ARGV[8] .. ' ' .. delivered .. ' ' .. ARGV[10])
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[11]) then redis.call('PEXPIRE', KEYS[2], ARGV[11]) end
return {'ok'}
