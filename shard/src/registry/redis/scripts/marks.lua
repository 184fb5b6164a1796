-- Notes down what became of events. Own arguments: kept for milliseconds, then an id and its mark (nothing to take it
-- away) for each.
local kept = ARGV[ARGS]
local refused = enter()
if refused then return refused end
for at = ARGS + 1, #ARGV, 2 do
  if ARGV[at + 1] == '' then
    redis.call('DEL', key('mark', ARGV[at]))
  else
    redis.call('SET', key('mark', ARGV[at]), ARGV[at + 1], 'PX', kept)
  end
end
return 1
