-- The send guard. Own arguments: kept for milliseconds, then errands one behind the other, each a step of its own:
--   `reserve`, channel, token, job, worker, incarnation, provider id with `=` before it or nothing, whether to send again
--              what is uncertain, this attempt, how many earlier attempts had no answer, and those;
--   `sent`, channel, token, job, provider id and result, each with `=` before it or nothing;
--   `cancel` or `uncertain`, channel, token, job.
-- Gives a word with a letter for each, then what belongs to them, one behind the other: for a reservation `f`resh, `a`gain (provider
-- id), `s`ent (provider id, result), `b`usy or `u`ncertain (worker, incarnation); `k`ept for what came of a send (what was stored as
-- sent stays); `x` where a newer owner of the channel has written. Nearly always the word is all there is to read.
local refused = enter()
if refused then return refused end
local kept, at = ARGV[ARGS], ARGS + 1
local function word()
  at = at + 1
  return ARGV[at - 1]
end
local letters, words = {}, { '' }
local function answer(letter, ...)
  letters[#letters + 1] = letter
  for number = 1, select('#', ...) do words[#words + 1] = select(number, ...) end
end

local function reserve(guard)
  local worker, life, chosen, resend = word(), word(), word(), word() == '1'
  local attempt, earlier = word(), tonumber(word())
  local first = at
  at = at + earlier
  local found = redis.call('HMGET', guard, 'state', 'worker', 'incarnation', 'provider_id', 'result', 'attempt')
  local state, by, by_life, provider_id = found[1], found[2], found[3], found[4]

  local function put(channel, id)
    if id then
      redis.call('HSET', guard, 'state', 'reserved', 'channel', channel, 'worker', worker, 'incarnation', life,
        'attempt', attempt, 'provider_id', id)
    else
      redis.call('HSET', guard, 'state', 'reserved', 'channel', channel, 'worker', worker, 'incarnation', life,
        'attempt', attempt)
      if provider_id then redis.call('HDEL', guard, 'provider_id') end
    end
    redis.call('PEXPIRE', guard, kept)
  end
  return function(channel)
    local function fresh()
      put(channel, chosen ~= '' and string.sub(chosen, 2))
      return answer('f')
    end
    local function again()
      put(channel, provider_id)
      return answer('a', provider_id)
    end
    if not state then return fresh() end
    if state == 'sent' then return answer('s', provider_id, found[5]) end
    if state == 'uncertain' and not resend then return answer('u', by, by_life) end
    if state ~= 'reserved' then return fresh() end
    if by == worker and by_life == life then
      -- Ours, but nobody was told: nothing went on the wire under it.
      local untold = found[6] == attempt
      for number = first, first + earlier - 1 do untold = untold or ARGV[number] == found[6] end
      if untold and provider_id then return again() end
      if untold then return fresh() end
      return answer('b', by, by_life)
    end
    local before = by == worker and tonumber(by_life) < tonumber(life)
    if not before then
      local current = redis.call('HGET', key('holder', by), 'current')
      local newest = not current or tonumber(current) <= tonumber(by_life)
      if newest and remaining(by, by_life, (tick(false))) > 0 then return answer('b', by, by_life) end
    end
    if provider_id then return again() end
    redis.call('HSET', guard, 'state', 'uncertain', 'uncertain_ms', text(wall_ms()))
    redis.call('PEXPIRE', guard, kept)
    return answer('u', by, by_life)
  end
end

local function settle(kind, guard)
  local provider_id, result
  if kind == 'sent' then provider_id, result = word(), word() end
  return function(channel)
    local found = redis.call('HMGET', guard, 'state', 'uncertain_ms')
    local state = found[1]
    if state == 'sent' then return answer('k') end
    local fields = {}
    local function set(field, value)
      fields[#fields + 1], fields[#fields + 2] = field, value
    end
    if not state then
      set('channel', channel)
      set('worker', ME)
      set('incarnation', LIFE)
    end
    if kind == 'sent' then
      set('state', 'sent')
      local without = { 'attempt' }
      for field, value in pairs({ provider_id = provider_id, result = result }) do
        if value ~= '' then set(field, string.sub(value, 2)) else without[#without + 1] = field end
      end
      if state then redis.call('HDEL', guard, unpack(without)) end
    elseif kind == 'uncertain' then
      set('state', 'uncertain')
      set('uncertain_ms', text(wall_ms()))
    elseif state == 'uncertain' or (state == 'reserved' and found[2]) then
      -- That there was a doubt stays on record.
      set('state', 'cancelled')
    else
      if state == 'reserved' then redis.call('DEL', guard) end
      return answer('k')
    end
    redis.call('HSET', guard, unpack(fields))
    redis.call('PEXPIRE', guard, kept)
    return answer('k')
  end
end

local proven = {}
while at <= #ARGV do
  local kind, channel, token, job = word(), word(), word(), word()
  local guard = key('guard', job)
  local errand = kind == 'reserve' and reserve(guard) or settle(kind, guard)
  if proven[channel] == token or not check_fence(channel, token) then
    proven[channel] = token
    errand(channel)
  else
    answer('x')
  end
end
words[1] = table.concat(letters)
return words
