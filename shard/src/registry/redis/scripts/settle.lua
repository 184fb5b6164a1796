-- What came of a send. Own arguments: channel, token, job, `sent`, `cancel` or `uncertain`, kept for milliseconds, and for
-- `sent` the provider id and the result, each with `=` before it or nothing. What was stored as sent stays.
local channel, token, job = ARGV[ARGS], ARGV[ARGS + 1], ARGV[ARGS + 2]
local event, kept = ARGV[ARGS + 3], ARGV[ARGS + 4]
local refused = enter() or check_fence(channel, token)
if refused then return refused end
local guard = key('guard', job)
local found = redis.call('HMGET', guard, 'state', 'uncertain_ms')
local state = found[1]
if state == 'sent' then return 0 end

local function set(...)
  if not state then redis.call('HSET', guard, 'channel', channel, 'worker', ME, 'incarnation', LIFE) end
  redis.call('HSET', guard, ...)
  redis.call('PEXPIRE', guard, kept)
end
local function put(field, value)
  if value ~= '' then redis.call('HSET', guard, field, string.sub(value, 2)) else redis.call('HDEL', guard, field) end
end

if event == 'sent' then
  set('state', 'sent')
  put('provider_id', ARGV[ARGS + 5])
  put('result', ARGV[ARGS + 6])
  redis.call('HDEL', guard, 'attempt')
elseif event == 'uncertain' then
  set('state', 'uncertain', 'uncertain_ms', text(wall_ms()))
elseif state == 'uncertain' or (state == 'reserved' and found[2]) then
  -- That there was a doubt stays on record.
  set('state', 'cancelled')
elseif state == 'reserved' then
  redis.call('DEL', guard)
end
return 1
