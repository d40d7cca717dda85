-- Not a write that needs to be refused: what is not held is released already.
local e = load()
if e == false then return {'corrupt'} end
if e and e.pod == ARGV[1] and e.process == ARGV[2] and e.epoch == tonumber(ARGV[3]) then
  e.lease = now
  redis.call('HDEL', KEYS[1], 'pod', 'process', 'address', 'draining')
  redis.call('HSET', KEYS[1], 'lease', digits(now))
  expire(e, ARGV[5])
end
return {'ok'}
