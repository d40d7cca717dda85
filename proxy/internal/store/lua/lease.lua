-- KEYS: holders of one name. ARGV: pod, process, limit, keep, need, want, life and
-- how long an odd permit belongs to the same holder. What is decided here is
-- explained, and decided in the same way, in permits.go.
--
-- A holder is stored as "till written count need process".
local pod, limit, keep, need, want = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', KEYS[1]) end

local all, known, others = redis.call('HGETALL', KEYS[1]), false, {}
for i = 1, #all, 2 do
  local till, count, needed, process = string.match(all[i + 1], '^(%d+) %d+ (%d%d?%d?%d?%d?%d?%d?) (%d%d?%d?%d?%d?%d?%d?) (.*)$')
  if not till or now >= tonumber(till) then
    redis.call('HDEL', KEYS[1], all[i])
  elseif all[i] == pod then
    known = process == ARGV[2]
  else
    others[#others + 1] = {pod = all[i], count = tonumber(count), need = tonumber(needed), fair = 0}
  end
end

local me = {pod = pod, count = 0, need = need, fair = 0}
local hungry, left = {}, limit
if need > 0 then hungry[1] = me end
for _, o in ipairs(others) do
  if o.need > 0 then hungry[#hungry + 1] = o end
end
table.sort(hungry, function(a, b) return a.pod < b.pod end)
while #hungry > 0 and left >= #hungry do
  local each, rest = math.floor(left / #hungry), {}
  for _, h in ipairs(hungry) do
    local part = math.min(each, h.need - h.fair)
    h.fair, left = h.fair + part, left - part
    if h.fair < h.need then rest[#rest + 1] = h end
  end
  hungry = rest
end
local window = math.floor(now / ARGV[8])
for i = 0, math.min(left, #hungry) - 1 do
  local h = hungry[(window % #hungry + i) % #hungry + 1]
  h.fair = h.fair + 1
end

local fair, free, rest = me.fair, limit, limit - me.fair - 1
for _, o in ipairs(others) do
  free, rest = free - o.count, rest - math.max(o.fair, o.count)
end
fair = fair + math.max(math.min(want - need, rest), 0)
local count = math.max(keep, math.min(fair, free))
if not known and keep > 0 then count = keep end

if keep == 0 and need == 0 and want == 0 then
  redis.call('HDEL', KEYS[1], pod)
else
  redis.call('HSET', KEYS[1], pod, digits(now + ARGV[7]) .. ' ' .. digits(now) .. ' ' .. digits(count) .. ' ' .. ARGV[5] .. ' ' .. ARGV[2])
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[7]) then redis.call('PEXPIRE', KEYS[1], ARGV[7]) end
end
return {'ok', digits(count), digits(fair)}
