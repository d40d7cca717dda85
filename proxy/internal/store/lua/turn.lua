-- The head of what is about turns. KEYS: entry, turns, transcript.
--
-- A turn is stored as "till begun attempt stage delivered json", with a transcript's
-- first element "attempt bytes".
local function turn(fingerprint)
  local raw = redis.call('HGET', KEYS[2], fingerprint)
  if not raw then return nil end
  local till, begun, attempt, stage, delivered, json = string.match(raw, '^(%d+) (%d+) (%d+) (%d) ([01]) (.*)$')
  if not till then return false end
  if now >= tonumber(till) then return nil end
  return {begun = tonumber(begun), attempt = tonumber(attempt), stage = tonumber(stage), delivered = delivered, json = json}
end

-- transcript returns attempt and bytes, nil if there is none, and false if it
-- cannot be read.
local function transcript()
  local head = redis.call('LINDEX', KEYS[3], 0)
  if not head then return nil end
  local attempt, bytes = string.match(head, '^(%d+) (%d+)$')
  if not attempt then return false end
  return tonumber(attempt), tonumber(bytes)
end
