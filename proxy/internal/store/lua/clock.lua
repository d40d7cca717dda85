-- The head of every script. All keys of a script share a hash tag, so that each
-- script runs on one node of a cluster. Times are the server's own, integer
-- milliseconds. Numbers are stored as decimal digits.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function digits(n) return string.format('%.0f', n) end
