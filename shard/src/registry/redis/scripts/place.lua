-- The places of events in their channel's sequence. Own arguments: channel, token, ids kept for milliseconds, how many at
-- most in a generation, ids. A place is given once: an id stands in `ids:<channel>:<generation>` with its place until its
-- event is stored, and with nothing from then on. Two generations are looked into, so that forgetting is one step.
local channel, token = ARGV[ARGS], ARGV[ARGS + 1]
local kept, most = tonumber(ARGV[ARGS + 2]), tonumber(ARGV[ARGS + 3])
local refused = enter() or check_fence(channel, token)
if refused then return refused end
local state = key('events', channel)
local found = redis.call('HMGET', state, 'seq', 'generation', 'since', 'count')
local seq, generation = tonumber(found[1] or 0), tonumber(found[2] or 0)
local now = (tick(false))
local since, count = tonumber(found[3] or now), tonumber(found[4] or 0)
if now - since > kept / 2 or count >= most then
  redis.call('DEL', key('ids', channel .. ':' .. text(generation - 1)))
  generation, since, count = generation + 1, now, 0
end
local young, old = key('ids', channel .. ':' .. text(generation)), key('ids', channel .. ':' .. text(generation - 1))
local places, added = {}, 0
for at = ARGS + 4, #ARGV do
  local place = redis.call('HGET', young, ARGV[at]) or redis.call('HGET', old, ARGV[at])
  if not place then
    seq, added = seq + 1, added + 1
    place = text(seq)
    redis.call('HSET', young, ARGV[at], place)
  end
  places[#places + 1] = place
end
redis.call('HSET', state, 'seq', text(seq), 'generation', text(generation), 'since', text(since), 'count', text(count + added))
redis.call('PEXPIRE', state, text(KEPT_MS))
-- Beyond their time by the registry's own clock, which stands still while nobody looks.
redis.call('PEXPIRE', young, text(2 * kept))
redis.call('PEXPIRE', old, text(2 * kept))
return places
