-- The head of every write: ARGV[1..4] are pod, process, epoch and fence of the
-- writer, ARGV[5] is how long an entry outlives its lease.
local e = load()
if e == false then return {'corrupt'} end
local fence = tonumber(ARGV[4])
if not e or e.pod ~= ARGV[1] or e.process ~= ARGV[2] or e.epoch ~= tonumber(ARGV[3]) or fence < e.fence then
  return {'fenced', view(e)}
end
if fence > e.fence then redis.call('HSET', KEYS[1], 'fence', ARGV[4]) end
