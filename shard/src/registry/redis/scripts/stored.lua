-- Events are stored. Own arguments: channel, token, kept for milliseconds, the offset with `=` before it or nothing, ids.
local channel, token, kept, offset = ARGV[ARGS], ARGV[ARGS + 1], tonumber(ARGV[ARGS + 2]), ARGV[ARGS + 3]
local refused = enter() or check_fence(channel, token)
if refused then return refused end
local state = key('events', channel)
local generation = tonumber(redis.call('HGET', state, 'generation') or 0)
local young, old = key('ids', channel .. ':' .. text(generation)), key('ids', channel .. ':' .. text(generation - 1))
for at = ARGS + 4, #ARGV do
  local there = redis.call('HEXISTS', old, ARGV[at]) == 1 and old or young
  redis.call('HSET', there, ARGV[at], '')
end
if #ARGV >= ARGS + 4 then redis.call('PEXPIRE', young, text(2 * kept)) end
if offset ~= '' then redis.call('HSET', state, 'read_to', string.sub(offset, 2)) end
redis.call('PEXPIRE', state, text(KEPT_MS))
return 1
