-- Notes down something about an outbox. Own arguments: outbox, key, and the note or nothing to take it away.
local refused = enter()
if refused then return refused end
local notes = key('notes', ARGV[ARGS])
if ARGV[ARGS + 2] == '' then
  redis.call('HDEL', notes, ARGV[ARGS + 1])
else
  redis.call('HSET', notes, ARGV[ARGS + 1], ARGV[ARGS + 2])
end
return 1
