-- ARGV[6..7] are fingerprint and attempt.
local attempt = tonumber(ARGV[7])
local last, written = turn(ARGV[6]), transcript()
if last == false or written == false then return {'corrupt'} end
if last and last.attempt > attempt then return {'conflict'} end
redis.call('HDEL', KEYS[2], ARGV[6])
if written and written <= attempt then redis.call('DEL', KEYS[3]) end
return {'ok'}
