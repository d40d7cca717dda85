-- KEYS: entry, turns. ARGV: pod, process, address, fence, lease, memory.
local e = load()
if e == false then return {'corrupt'} end
local fence = tonumber(ARGV[4])
local before = view(e)
if e and (fence < e.fence or (before[1] ~= '' and before[1] ~= ARGV[1])) then return {'fenced', before} end

local turns, over = {}, {}
local all = redis.call('HGETALL', KEYS[2])
for i = 1, #all, 2 do
  local till, begun, delivered, json = string.match(all[i + 1], '^(%d+) (%d+) %d+ %d ([01]) (.*)$')
  if not till then return {'corrupt'} end
  if now < tonumber(till) then
    turns[#turns + 1] = {all[i], digits(now - begun), delivered, json}
  else
    over[#over + 1] = all[i]
  end
end
local value = e and now < e.keep and redis.call('HGET', KEYS[1], 'value') or ''

-- An entry that was forgotten starts beyond every epoch it can have had.
local mine = {epoch = e and e.epoch + 1 or now, lease = now + ARGV[5], keep = e and e.keep or 0}
redis.call('HSET', KEYS[1], 'pod', ARGV[1], 'process', ARGV[2], 'address', ARGV[3], 'epoch', digits(mine.epoch),
  'fence', ARGV[4], 'lease', digits(mine.lease), 'draining', '0')
expire(mine, ARGV[6])
for _, fingerprint in ipairs(over) do redis.call('HDEL', KEYS[2], fingerprint) end
return {'ok', digits(mine.epoch), before, value, turns}
