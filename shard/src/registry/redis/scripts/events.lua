-- What came after a place in the events. Own arguments: the pool's prefix, the place or nothing, how many at most. Gives
-- whether events may be missing, where to go on, and the entries. `0-0` is before the first.
local events, after, most = ARGV[ARGS] .. 'events', ARGV[ARGS + 1], ARGV[ARGS + 2]
-- The stream is trimmed to about so many, never below.
local KEPT = 10000

local function is_after(a, b)
  local a_ms, a_number = string.match(a, '^(%d+)-(%d+)$')
  local b_ms, b_number = string.match(b, '^(%d+)-(%d+)$')
  if a_ms ~= b_ms then return tonumber(a_ms) > tonumber(b_ms) end
  return tonumber(a_number) > tonumber(b_number)
end

local last = redis.call('XREVRANGE', events, '+', '-', 'COUNT', 1)[1]
if after == '' then return { 1, last and last[1] or '0-0', {} } end
local first = redis.call('XRANGE', events, '-', '+', 'COUNT', 1)[1]
if not first then
  -- Emptied, where something was.
  return { after ~= '0-0' and 1 or 0, '0-0', {} }
end
local gap
if after == '0-0' then
  gap = redis.call('XLEN', events) >= KEPT
else
  -- What was read last is gone, and perhaps more; or all of it, and what is there is older.
  gap = is_after(first[1], after) or is_after(after, last[1])
end
if is_after(after, last[1]) then after = '0-0' end
local read = redis.call('XREAD', 'COUNT', most, 'STREAMS', events, after)
local entries = read and read[1] and read[1][2] or {}
if #entries > 0 then after = entries[#entries][1] end
return { gap and 1 or 0, after, entries }
