-- A worker is gone. Own argument: the pool's prefix.
local POOL = ARGV[ARGS]
local info = POOL .. 'info:' .. ME
if redis.call('HGET', info, 'instance') ~= ARGV[4] then return 0 end
redis.call('ZREM', POOL .. 'heartbeats', ME)
redis.call('DEL', info)
redis.call('PUBLISH', POOL .. 'members', ME)
return 1
