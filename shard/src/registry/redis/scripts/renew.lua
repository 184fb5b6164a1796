-- Renews all that a holder has; gives the numbers of those that are lost. Own arguments: the layout as it was published or
-- nothing, then resource and token by turns. Records that vanished or are older than the lease are written again:
-- this holder knows better.
local lost = {}
if superseded() then
  for number = 1, (#ARGV - ARGS) / 2 do lost[number] = number - 1 end
  return lost
end
local now = tick(false)
local holder = key('holder', ME)
local keys, count = {}, 0
for at = ARGS + 1, #ARGV, 2 do
  count = count + 1
  keys[count] = PREFIX .. 'lease:' .. ARGV[at]
end
local by = ' ' .. LIFE .. ' ' .. ME
local records = count > 0 and redis.call('MGET', unpack(keys)) or {}
for number = 1, count do
  local at = ARGS + number * 2
  local record = records[number]
  if record ~= ARGV[at] .. by then
    local ours = true
    if record then
      local token, life, worker = parse(record)
      local others = life ~= '-' and not (worker == ME and life == LIFE)
      ours = token < tonumber(ARGV[at]) and not (others and remaining(worker, life, now) > 0)
    end
    local channel = string.match(ARGV[at - 1], '^channel/(.*)$')
    -- Where a newer owner has written it is not ours, whatever became of the record.
    if ours and channel then ours = not check_fence(channel, ARGV[at]) end
    if ours then
      redis.call('SET', keys[number], ARGV[at] .. by)
    else
      lost[#lost + 1] = number - 1
    end
  end
end
redis.call('HSET', holder, LIFE, text(now + LEASE))
redis.call('PEXPIRE', holder, text(KEPT_MS))
if ARGV[ARGS] ~= '' then
  local epoch = '"epoch":(%d+)'
  local stored = string.match(redis.call('GET', PREFIX .. 'layout') or '', epoch)
  if not stored or tonumber(stored) < tonumber(string.match(ARGV[ARGS], epoch)) then
    redis.call('SET', PREFIX .. 'layout', ARGV[ARGS])
  end
end
return lost
