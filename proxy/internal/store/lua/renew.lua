-- ARGV[6] is the lease.
e.lease = now + ARGV[6]
redis.call('HSET', KEYS[1], 'lease', digits(e.lease))
expire(e, ARGV[5])
return {'ok'}
