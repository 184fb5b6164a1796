-- The send guard's reservation. Own arguments: channel, token, job, worker, incarnation, provider id with `=` before it or
-- nothing, whether to send again what is uncertain, kept for milliseconds, this attempt, and earlier attempts whose
-- answer never came.
local channel, token, job = ARGV[ARGS], ARGV[ARGS + 1], ARGV[ARGS + 2]
local worker, life, chosen = ARGV[ARGS + 3], ARGV[ARGS + 4], ARGV[ARGS + 5]
local resend, kept, attempt = ARGV[ARGS + 6] == '1', ARGV[ARGS + 7], ARGV[ARGS + 8]
local refused = enter() or check_fence(channel, token)
if refused then return refused end
local guard = key('guard', job)
local found = redis.call('HMGET', guard, 'state', 'worker', 'incarnation', 'provider_id', 'result', 'attempt')
local state, by, by_life, provider_id = found[1], found[2], found[3], found[4]

local function reserve(id)
  redis.call('HSET', guard, 'state', 'reserved', 'channel', channel, 'worker', worker, 'incarnation', life, 'attempt', attempt)
  if id then redis.call('HSET', guard, 'provider_id', id) elseif provider_id then redis.call('HDEL', guard, 'provider_id') end
  redis.call('PEXPIRE', guard, kept)
end
local function fresh()
  reserve(chosen ~= '' and string.sub(chosen, 2))
  return { 'fresh' }
end
local function again()
  reserve(provider_id)
  return { 'again', provider_id }
end

if not state then return fresh() end
if state == 'sent' then return { 'sent', provider_id, found[5] } end
if state == 'uncertain' and not resend then return { 'uncertain', by, by_life } end
if state ~= 'reserved' then return fresh() end
if by == worker and by_life == life then
  for at = ARGS + 9, #ARGV do
    -- Ours, but nobody was told: nothing went on the wire under it.
    if ARGV[at] == found[6] then return provider_id and again() or fresh() end
  end
  return { 'busy', by, by_life }
end
local earlier = by == worker and tonumber(by_life) < tonumber(life)
if not earlier then
  local current = redis.call('HGET', key('holder', by), 'current')
  local newest = not current or tonumber(current) <= tonumber(by_life)
  if newest and remaining(by, by_life, (tick(false))) > 0 then return { 'busy', by, by_life } end
end
if provider_id then return again() end
redis.call('HSET', guard, 'state', 'uncertain', 'uncertain_ms', text(wall_ms()))
redis.call('PEXPIRE', guard, kept)
return { 'uncertain', by, by_life }
