-- Gives leases back. Own arguments: resource and token by turns. What is somebody else's stays as it is.
for at = ARGS, #ARGV, 2 do
  local lease = key('lease', ARGV[at])
  if redis.call('GET', lease) == ARGV[at + 1] .. ' ' .. LIFE .. ' ' .. ME then
    redis.call('SET', lease, ARGV[at + 1] .. ' - ' .. ME, 'PX', text(KEPT_MS))
  end
end
return 1
