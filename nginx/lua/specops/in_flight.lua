-- How many requests each pool has, over all workers, each counted as often as it asks for sequences.
--
-- Of the speculative pool, which has a limit, every change is shared at once. A worker that is killed never says
-- that its requests ended. So each also keeps what is its own, by its process id, and what the dead had is taken
-- off again. Of the standard pool, each worker says once in a second what it has.

local ffi = require("ffi")

ffi.cdef("int kill(int pid, int signal);")

local ESRCH = 3

local counts = ngx.shared.specops_in_flight
local standard = 0 -- of this worker
local own, own_standard

local M = {}

-- In init_worker: what a worker of this id had before is not this one's.
function M.join()
  local pid = ngx.worker.pid()
  own, own_standard = pid .. ":speculative", pid .. ":standard"
  local had = counts:get(own)
  if had then
    counts:incr("speculative", -had)
  end
  counts:set(own, 0)
  counts:set(own_standard, 0)
  counts:add("speculative", 0)
end

function M.of_speculative()
  return counts:get("speculative") or 0
end

-- Returns how many there are then.
function M.add_speculative(weight)
  counts:incr(own, weight, 0)
  return counts:incr("speculative", weight, 0)
end

function M.add_standard(weight)
  standard = standard + weight
end

-- Once in a second, in each worker.
function M.publish()
  counts:set(own_standard, standard)
end

function M.of_standard()
  local sum = 0
  for _, key in ipairs(counts:get_keys(0)) do
    if key:find(":standard", 1, true) then
      sum = sum + (counts:get(key) or 0)
    end
  end
  return sum
end

local function is_dead(pid)
  return ffi.C.kill(pid, 0) ~= 0 and ffi.errno() == ESRCH
end

-- Once in a second, in one worker.
function M.bury_the_dead()
  for _, key in ipairs(counts:get_keys(0)) do
    local pid, pool = key:match("^(%d+):(%a+)$")
    if pid and is_dead(tonumber(pid)) then
      if pool == "speculative" then
        counts:incr(pool, -(counts:get(key) or 0))
      end
      counts:delete(key)
    end
  end
end

return M
