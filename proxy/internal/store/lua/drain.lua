redis.call('HSET', KEYS[1], 'draining', '1')
return {'ok'}
