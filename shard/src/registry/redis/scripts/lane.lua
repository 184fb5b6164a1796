-- Lanes that wait. Own arguments: queue, the queue's slot, field, and the fact or nothing to clear it.
local queue, slot, field, fact = ARGV[ARGS], ARGV[ARGS + 1], ARGV[ARGS + 2], ARGV[ARGS + 3]
local refused = enter()
if refused then return refused end
local record = redis.call('GET', key('lease', 'slot/' .. slot))
if record then
  local _, life, worker = parse(record)
  -- Another box took the slot over: the order of its lanes is decided there.
  if life ~= '-' and worker ~= ME and remaining(worker, life, (tick(false))) > 0 then return fenced('slot/' .. slot) end
end
if fact == '' then
  redis.call('HDEL', key('lanes', queue), field)
else
  redis.call('HSET', key('lanes', queue), field, fact)
end
return 1
