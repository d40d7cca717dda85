-- ARGV[6..8] are version, value and life.
local version = now < e.keep and e.version or 0
if version < tonumber(ARGV[6]) then
  e.keep = now + ARGV[8]
  redis.call('HSET', KEYS[1], 'version', ARGV[6], 'value', ARGV[7], 'keep', digits(e.keep))
  expire(e, ARGV[5])
end
return {'ok'}
