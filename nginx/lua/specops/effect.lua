-- The live effect: what the router counts of eligible requests, by group: those that went to the speculative pool,
-- and the holdout, which chance keeps on the standard pool. Of random windows, the groups are all eligible requests of
-- windows with and without speculation; those that come while a window begins, "burn-in", are in no mean.
--
-- Of each figure: the number of values, their sum and the sum of their squares; and of the load that the request
-- met, the sums that an adjustment for load takes. Failures are values of 0 and 1. As in metrics.lua, a worker counts
-- in tables of its own, and adds them to shared memory once in a second.

local in_flight = require("specops.in_flight")
local rules = require("specops.rules")

local byte, find = string.byte, string.find

local SUMS = { "requests", "sum", "squares", "load", "load_squares", "load_product" }
local USAGE = '"completion_tokens":'

local M = {}

-- Requests for each server of a pool. Taken once in a second, of each pool alike.
local load_of = { speculative = 0, standard = 0 }

function M.load(pool)
  return load_of[pool]
end

-- group -> class -> figure -> sums since they were published
local pending = {}
-- class -> reason -> requests
local left_out = {}

local function below(node, name)
  local branch = node[name]
  if not branch then
    branch = {}
    node[name] = branch
  end
  return branch
end

local function observe(cells, figure, value, load)
  local sums = cells[figure]
  if not sums then
    sums = { requests = 0, sum = 0, squares = 0, load = 0, load_squares = 0, load_product = 0 }
    cells[figure] = sums
  end
  sums.requests = sums.requests + 1
  sums.sum = sums.sum + value
  sums.squares = sums.squares + value * value
  sums.load = sums.load + load
  sums.load_squares = sums.load_squares + load * load
  sums.load_product = sums.load_product + load * value
end

local function leave_out(class, reason)
  local reasons = below(left_out, class)
  reasons[reason] = (reasons[reason] or 0) + 1
end

-- The last count of tokens in `text`, the end of an answer; nil where it has none.
function M.tokens(text)
  local after
  local first, last = find(text, USAGE, 1, true)
  while first do
    after = last + 1
    first, last = find(text, USAGE, after, true)
  end
  if not after then
    return nil
  end
  while byte(text, after) == 32 do
    after = after + 1
  end
  local value
  local digit = byte(text, after)
  while digit and digit >= 48 and digit <= 57 do
    value = (value or 0) * 10 + digit - 48
    after = after + 1
    digit = byte(text, after)
  end
  return value
end

-- A request of a group has ended. `answered`: by the pool of its group. `first_byte` in seconds, nil where the answer
-- was not streamed; `tail` is the end of the answer.
function M.count(group, class, load, status, answered, duration, first_byte, tail)
  local reason = group == "burn-in" and group or status == 499 and "client-left"
  if reason then
    leave_out(class, reason)
    return
  end
  local cells = below(below(pending, group), class)
  local failed = not answered or status >= 500
  observe(cells, "failures", failed and 1 or 0, load)
  if failed then
    leave_out(class, answered and "failed" or "failover")
    return
  elseif status < 200 or status >= 300 then
    leave_out(class, "refused")
    return
  end
  observe(cells, "e2e", duration, load)
  local tokens = M.tokens(tail)
  if tokens then
    observe(cells, "tokens", tokens, load)
  end
  if first_byte then
    observe(cells, "ttft", first_byte, load)
    if tokens and tokens > 1 then
      observe(cells, "tpot", (duration - first_byte) / (tokens - 1), load)
    end
  end
end

local function publish_figure(add, labels, figure, sums)
  if sums.requests == 0 then
    return
  end
  for _, name in ipairs(SUMS) do
    add(('specops_effect_%s_total{%s,figure="%s"}'):format(name, labels, figure), sums[name])
    sums[name] = 0
  end
end

-- Once in a second, in each worker. `add(key, by)` adds to shared memory.
function M.publish(add)
  load_of.speculative = in_flight.of_speculative() / rules.servers.speculative
  load_of.standard = in_flight.of_standard() / rules.servers.standard
  for group, classes in pairs(pending) do
    for class, figures in pairs(classes) do
      local labels = ('class="%s",group="%s"'):format(class, group)
      for figure, sums in pairs(figures) do
        publish_figure(add, labels, figure, sums)
      end
    end
  end
  for class, reasons in pairs(left_out) do
    for reason, count in pairs(reasons) do
      add(('specops_effect_left_out_total{class="%s",reason="%s"}'):format(class, reason), count)
      reasons[reason] = 0
    end
  end
end

return M
