-- A worker lives. Own arguments: the pool's prefix, after how many milliseconds of silence a worker is dead, whether an
-- earlier life is proven dead, and fields of its info by turns, or nothing of these two to look on alone. Gives for how
-- long the registry settles, then for each member: id, milliseconds of silence, and its info as JSON.
local POOL, timeout, supersede = ARGV[ARGS], tonumber(ARGV[ARGS + 1]), ARGV[ARGS + 2]
local DAY = 24 * 3600 * 1000
local now, settled = tick(true)
local beats = POOL .. 'heartbeats'

if supersede then
  local info = POOL .. 'info:' .. ME
  local found = redis.call('HMGET', info, 'incarnation', 'instance', 'host', 'seen_ms', 'state')
  local life, ours = tonumber(found[1] or 0), found[2] == ARGV[4]
  if life > tonumber(LIFE) then return fenced('worker/' .. ME) end
  local lives = found[4] and now - tonumber(found[4]) < timeout
  if lives and not ours and not (supersede == '1' and life < tonumber(LIFE)) then
    return redis.error_reply('HELD ' .. (found[3] or ''))
  end
  local state
  for at = ARGS + 3, #ARGV, 2 do
    if ARGV[at] == 'state' then state = ARGV[at + 1] end
    redis.call('HSET', info, ARGV[at], ARGV[at + 1])
  end
  redis.call('HSET', info, 'worker_id', ME, 'incarnation', LIFE, 'instance', ARGV[4], 'seen_ms', text(now))
  redis.call('ZADD', beats, text(math.floor(wall_ms() / 1000)), ME)
  if not ours or not lives or found[5] ~= state then redis.call('PUBLISH', POOL .. 'members', ME) end
end

local answer = { text(math.max(0, math.min(settled - now, SETTLE))) }
for _, worker in ipairs(redis.call('ZRANGE', beats, 0, -1)) do
  local fields = redis.call('HGETALL', POOL .. 'info:' .. worker)
  local info = {}
  for at = 1, #fields, 2 do info[fields[at]] = fields[at + 1] end
  local silent = info.seen_ms and math.max(0, now - tonumber(info.seen_ms))
  if not silent or silent > DAY then
    redis.call('ZREM', beats, worker)
    redis.call('DEL', POOL .. 'info:' .. worker)
  else
    for _, word in ipairs({ worker, text(silent), cjson.encode(info) }) do answer[#answer + 1] = word end
  end
end
return answer
