-- Bots no longer run here. Own arguments: the pool's prefix, bots. What runs elsewhere by now stays.
local assignments = ARGV[ARGS] .. 'assignments'
for at = ARGS + 1, #ARGV do
  local known, found = pcall(cjson.decode, redis.call('HGET', assignments, ARGV[at]) or '')
  if known and type(found) == 'table' and found.worker_id == ME then redis.call('HDEL', assignments, ARGV[at]) end
end
return 1
