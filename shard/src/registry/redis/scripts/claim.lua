-- Claims. Own arguments: whether to supersede, then resource and floor by turns. Gives for each resource `1, token` or
-- `0, worker, incarnation, remaining`; an empty worker is whoever held it before the registry lost what it knew.
if superseded() then return fenced('worker/' .. ME) end
local now, settled = tick(true)
local holder = key('holder', ME)
local supersede = ARGV[ARGS] == '1'
if supersede then
  -- Proven dead: what they held is free, whether or not it is claimed now.
  for _, life in ipairs(redis.call('HKEYS', holder)) do
    if life ~= 'current' and tonumber(life) < tonumber(LIFE) then redis.call('HDEL', holder, life) end
  end
end
local wall = wall_ms()
local settling = math.min(settled - now, SETTLE)
local lives = {}
local function left(worker, life)
  local name = life .. ' ' .. worker
  if not lives[name] then lives[name] = remaining(worker, life, now) end
  return lives[name]
end

local leases = {}
for at = ARGS + 1, #ARGV, 2 do leases[#leases + 1] = PREFIX .. 'lease:' .. ARGV[at] end
local records = #leases > 0 and redis.call('MGET', unpack(leases)) or {}
local by_us = ' ' .. LIFE .. ' ' .. ME

local answer, said = {}, 0
for number = 1, #leases do
  local lease, record, floor = leases[number], records[number], tonumber(ARGV[ARGS + number * 2])
  local token, life, worker = 0, '-', ''
  if record then token, life, worker = parse(record) end
  local ours = worker == ME and life == LIFE
  -- Of an earlier life of ours that is proven dead, or that gave it back.
  local inherited = supersede and worker == ME and (life == '-' or tonumber(life) < tonumber(LIFE))
  local taken, by = 0, life
  if not ours and not inherited then
    if life ~= '-' then taken = left(worker, life) end
    if taken <= 0 and settling > 0 then
      taken = settling
      if life == '-' then worker, by = '', '0' end
    end
  end
  if taken > 0 then
    answer[said + 1], answer[said + 2], answer[said + 3], answer[said + 4] = '0', worker, by, text(taken)
    said = said + 4
  else
    local granted = text(token)
    if not ours or token < floor then
      -- Above all that were given, also when the record of them is lost: the server's time is above them.
      granted = text(math.max(token + 1, floor + 1, wall))
      if record then
        redis.call('SET', lease, granted .. by_us)
      elseif not redis.call('SET', lease, granted .. by_us, 'NX') then
        return redis.error_reply('WRONGTYPE ' .. lease)
      end
    end
    answer[said + 1], answer[said + 2] = '1', granted
    said = said + 2
  end
end
-- A claim is also a renewal: what the holder has lives as long as it does.
redis.call('HSET', holder, LIFE, text(now + LEASE))
redis.call('PEXPIRE', holder, text(KEPT_MS))
return answer
