-- The head of what is about a key: its entry, and who may write it.

-- load returns the entry, nil if there is none, and false if it cannot be read.
local function load()
  local f = redis.call('HMGET', KEYS[1], 'pod', 'process', 'address', 'epoch', 'fence', 'lease', 'draining', 'version', 'keep')
  if not f[4] then return nil end
  local e = {
    pod = f[1] or '', process = f[2] or '', address = f[3] or '', draining = f[7] or '0',
    epoch = tonumber(f[4]), fence = tonumber(f[5] or ''), lease = tonumber(f[6] or ''),
    version = tonumber(f[8] or '0'), keep = tonumber(f[9] or '0'),
  }
  if not (e.epoch and e.fence and e.lease and e.version and e.keep) then return false end
  return e
end

-- view is the entry as others see it, without its value.
local function view(e)
  if not e then return {'', '', '', '0', '0', '0', '0', '0'} end
  local version = now < e.keep and e.version or 0
  if e.pod ~= '' and now < e.lease then
    return {e.pod, e.process, e.address, digits(e.epoch), digits(e.fence), digits(e.lease - now), e.draining, digits(version)}
  end
  return {'', '', '', digits(e.epoch), digits(e.fence), '0', '0', digits(version)}
end

-- expire lets the entry live as long as its value, and longer than its lease by
-- what the caller says.
local function expire(e, memory)
  redis.call('PEXPIREAT', KEYS[1], digits(math.max(e.lease + memory, e.keep)))
end
