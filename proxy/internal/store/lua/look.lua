local e = load()
if e == false then return {'corrupt'} end
local seen = view(e)
if seen[1] == '' and seen[8] == '0' then return {'missing'} end
return {'ok', seen, now < e.keep and redis.call('HGET', KEYS[1], 'value') or ''}
