-- KEYS: board. ARGV: name, value, life and the most notes of a board.
--
-- A note is stored as "till written value". Whatever else is in the place of a
-- board is nobody's, and makes room.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], ARGV[1], digits(now + ARGV[3]) .. ' ' .. digits(now) .. ' ' .. ARGV[2])
local excess = redis.call('HLEN', KEYS[1]) - ARGV[4]
if excess > 0 then
  local all, others = redis.call('HGETALL', KEYS[1]), {}
  for i = 1, #all, 2 do
    local till, written = string.match(all[i + 1], '^(%d+) (%d+) ')
    if not till or now >= tonumber(till) then
      redis.call('HDEL', KEYS[1], all[i])
      excess = excess - 1
    elseif all[i] ~= ARGV[1] then
      others[#others + 1] = {all[i], tonumber(written)}
    end
  end
  table.sort(others, function(a, b) return a[2] < b[2] end)
  for i = 1, excess do redis.call('HDEL', KEYS[1], others[i][1]) end
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return {'ok'}
